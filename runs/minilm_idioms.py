"""Makes the model `minilm_idioms`: MiniLM that knows the 2,063 expressions of the glossary `english`.

    python runs/minilm_idioms.py [<folder for the runs>]

From CC0 data alone, all of it the project's own. A teacher is trained to read meanings, on the data set
`idioms` (experiment `idiolink_glossary`, four epochs). MiniLM then learns all lines of `english` from it, into
adapters (`idiomtune learn`), so that nothing is read when a text is embedded.
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

import idiomtune as it

SHIPPED = Path(it.__file__).parent / "encoder" / "adapters" / "minilm_idioms"


def main(folder: str = "checkpoints/minilm_idioms") -> None:
    """Train the teacher, learn from it, and write the adapters as halves."""
    teacher = Path(folder) / "teacher"
    it.train("idiolink_glossary", "data=idioms", "split=val", "eval.every=end", f"run_dir={teacher}")
    options = {"teacher": teacher / "best", "rank": 32}
    it.learn("minilm", "english", output=Path(folder) / "learned", **options)
    file = "adapter_model.safetensors"
    adapters = Path(folder) / "learned" / "adapters"
    tensors = {name: tensor.half() for name, tensor in load_file(adapters / file).items()}
    save_file(tensors, SHIPPED / file)
    config = (adapters / "adapter_config.json").read_text(encoding="utf-8")
    (SHIPPED / "adapter_config.json").write_text(config, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
