"""The API reference from docstrings, as HTML: `make docs`, or `python docs/api.py [output folder]`."""

from __future__ import annotations

import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def modules() -> Iterator[str]:
    """All public modules, named one by one: else pdoc leaves out those that `__all__` does not name."""
    for package in ("idiomloss", "train"):
        yield package
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if not module.name.rpartition(".")[2].startswith("_"):
                yield module.name


def main(output: str = "build/docs") -> None:
    """Write a page for each public module of `idiomloss` and `train`; a warning is an error."""
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("error", UserWarning)
    # Of a package without `__all__`, pdoc finds the modules by itself, too.
    warnings.filterwarnings("ignore", message=r".* has already been added")
    # Annotations of a NamedTuple, which it looks up in another module: shown as they are written.
    warnings.filterwarnings("ignore", message=r"Error parsing type annotation ForwardRef\(")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it speaks of packages that nobody asked for
    import pdoc

    import train
    from train.encoder.encoder import Encoder

    vars(train)["Encoder"] = Encoder  # which the package loads when it is first asked for it
    pdoc.render.configure(docformat="google", math=False, search=True, footer_text="idiomtune")
    pdoc.pdoc(*modules(), output_directory=Path(output))
    print(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
