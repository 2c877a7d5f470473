"""Makes the model `minilm_idioms`: MiniLM that knows the 2,063 expressions of the glossary `english`.

    python runs/minilm_idioms.py [<folder for the runs>]

From CC0 data alone, all of it the project's own. A teacher is trained to read meanings, on the data set
`idioms` (experiment `idiolink_glossary`, four epochs). MiniLM then learns all lines of `english` from it,
into adapters (`idiomtune learn`), so that nothing is read when a text is embedded. Of what they add to the
weights seven tenths ship: docs/results/idioms.md shows what each tenth gives and costs. Fifty minutes on two
cores with bfloat16.
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

import idiomtune as it
from idiomtune.data.idiolink import load_split
from idiomtune.data.idioms import idioms_folder

SHARE = 0.7  # of the change of the weights
SHIPPED = Path(it.__file__).parent / "encoder" / "adapters" / "minilm_idioms"


def main(folder: str = "checkpoints/minilm_idioms") -> None:
    """Train the teacher, learn from it, and write a share of the adapters as halves."""
    teacher = Path(folder) / "teacher"
    scores = [
        f"idiolink/val/{mode}/{metric}"
        for mode in ("sentence", "span")
        for metric in ("r_precision", "ndcg@10")
    ]
    it.train(
        *("idiolink_glossary", "data=idioms", "benchmark=[idiolink]", "benchmark.idiolink.split=[val]"),
        *(f"trainer.monitor=[{','.join(scores)}]", "eval.every=end", "forgetting.distillation=1"),
        run_dir=teacher,
    )
    train = load_split(idioms_folder(), "train")
    it.learn(
        "minilm",
        "english",
        corpus=list(dict.fromkeys(record.sentence for record in (*train.documents, *train.queries))),
        teacher=str(teacher / "best"),
        output=Path(folder) / "learned",
        rank=32,
        learning_rate=2e-3,
        epochs=6,
    )
    file = "adapter_model.safetensors"
    adapters = Path(folder) / "learned" / "adapter"
    tensors = {
        name: (tensor * (SHARE if "lora_B" in name else 1)).half()
        for name, tensor in load_file(adapters / file).items()
    }
    save_file(tensors, SHIPPED / file)
    config = (adapters / "adapter_config.json").read_text(encoding="utf-8")
    (SHIPPED / "adapter_config.json").write_text(config, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
