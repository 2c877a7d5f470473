"""The API reference from docstrings, as HTML: `make docs`, or `python docs/api.py [output folder]`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(output: str = "build/docs") -> None:
    """Write a page for each public module of `idiomloss` and `train`; a warning is an error."""
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("error", UserWarning)
    import pdoc

    import train
    from train.encoder import Encoder

    train.Encoder = Encoder  # the package loads it when it is first asked for, which pdoc cannot know
    pdoc.render.configure(docformat="google", math=False, search=True, footer_text="idiomtune")
    pdoc.pdoc("idiomloss", "train", output_directory=Path(output))
    print(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
