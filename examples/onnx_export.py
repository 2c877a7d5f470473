"""A saved model as ONNX, by sentence-transformers' own backend, and a check that it embeds as before.

    python examples/onnx_export.py <run>/best out/onnx

Runs in an environment of its own, `pip install "sentence-transformers[onnx]<6"`: that backend needs
optimum-onnx, which needs transformers 4, and what trains here needs transformers 5. Imports nothing of this
project.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from sentence_transformers import SentenceTransformer

TEXTS = [
    "He broke the ice with a joke.",
    "The ship broke the ice on its way to the harbour.",
    "He made everybody relax.",
    "Yes.",
]
TOLERANCE = 1e-3


def portable(model: Path, folder: Path) -> None:
    """A copy of the model that names its modules as sentence-transformers 2 to 6 know them."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8"))
    for module in modules:
        if module["type"].startswith("sentence_transformers."):
            module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    path.write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")


def export(model: Path, output: Path, backend: Literal["onnx", "openvino"] = "onnx") -> float:
    """Write the exported model, load it again, and compare its embeddings with the model's own.

    Returns:
        The largest difference of a number in an embedding.
    """
    if (model / "idiom_tokens.json").is_file():
        sys.exit(
            f"{model} has idiom tokens: whether transformers 4 reads its tokenizer's rules was not tried"
        )
    with tempfile.TemporaryDirectory() as folder:
        portable(model, Path(folder))
        expected = SentenceTransformer(folder, device="cpu").encode(TEXTS)
        SentenceTransformer(folder, device="cpu", backend=backend).save_pretrained(str(output))
    exported = SentenceTransformer(str(output), device="cpu", backend=backend).encode(TEXTS)
    return float(np.abs(exported - expected).max())


def main(model: str, output: str) -> None:
    difference = export(Path(model), Path(output))
    if not difference <= TOLERANCE:
        shutil.rmtree(output)
        sys.exit(
            f"the exported model's embeddings differ by {difference:.1e}: it would be another model, and is "
            "not kept. An ONNX model gives its last layer only, so that pooling over several layers "
            "(model.pooling=last2) cannot be exported"
        )
    print(f"{output}: embeddings differ by at most {difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
