"""Makes idiomtune/encoder/adapters/minilm_idioms: the adapter and the gate of `model=minilm_idioms`.

    python runs/minilm_idioms.py

Trained on MAGPIE's uses of 171 expressions ($IDIOM_DATA/magpie or the download; CC BY 4.0) and on sentences of our
own about them (CC0), with a line for each (the glossary `magpie`, CC0). Nothing of IdioLink, and none of its idioms.
Four minutes on two cores with bfloat16. What the model reaches: docs/results/knowledge.md.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import idiomtune as it
from idiomtune.data.magpie import FILES, read_magpie_idioms
from idiomtune.data.names import MAGPIE
from idiomtune.data.places import magpie_usages
from idiomtune.data.sources import DataFiles, dataset_folder
from idiomtune.encoder.glossary import GLOSSARIES, read_glossary
from idiomtune.encoder.known_gates import ADAPTER_GATE, fit_gate
from idiomtune.io.files import write_text
from idiomtune.io.terminal import log_to_stderr

SHIPPED = Path(it.__file__).parent / "encoder/adapters/minilm_idioms"
OPTIONS = {
    "model.glossary": "magpie",
    "model.glossary_form": "beside",
    "model.glossary_gate": False,
    "model.glossary_dropout": 0.25,
    "retain.lora.rank": 16,
    "objective.query_mode": ["span", "sentence", "masked_span"],
    "objective.query_weights": [1.0, 0.5, 0.5],
    "objective.document_mode": "sentence",
    "objective.groups_per_batch": 8,
    "objective.infonce.temperature": 0.03,
    "objective.infonce.hard_weight": 5.0,
    "trainer.batch_size": 64,
    "trainer.max_epochs": 4,
    "trainer.max_steps": 168,
    "trainer.learning_rate": 5e-4,
    "trainer.patience": None,
    "eval.every": "end",
    "data.val_share": 0.05,
    "precision": "bf16",
    "seed": 42,
}


def main() -> None:
    """Train, and write adapter and gate."""
    log_to_stderr()
    files = DataFiles(FILES, dataset_folder(MAGPIE, None, None, sample=False))
    scored = read_glossary([GLOSSARIES / "idiolink.tsv"]).senses
    rows = [
        {
            "text": document.sentence,
            **dict(zip(("span_start", "span_end"), document.span_offsets, strict=True)),
            "group": document.idiom,
            "meaning": "literal" if document.usage == "literal" else "idiomatic",
            "usage": document.usage,
        }
        for document in read_magpie_idioms(files, unseen=scored, trained=[]).documents
    ]
    run = it.train("own", **{"data.train": rows, **OPTIONS})
    encoder = it.Encoder(run.path / "best")
    assert encoder.meanings is not None
    encoder.meanings = replace(encoder.meanings, gate=None)
    gate = fit_gate(encoder, magpie_usages(scored))
    SHIPPED.mkdir(parents=True, exist_ok=True)
    for file in (run.path / "best/adapter").iterdir():
        shutil.copy(file, SHIPPED)
    write_text(SHIPPED / ADAPTER_GATE, json.dumps(gate._asdict()) + "\n")


if __name__ == "__main__":
    main()
