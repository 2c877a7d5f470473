"""What all ways do: the same model, data, order, seed, loss, optimizer, precision and scored split."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import get_linear_schedule_with_warmup

from bench.measure import ROOT
from idiomtune.config import TrainSettings, validate
from idiomtune.data.idiolink import Split, load_split, read_released, released_file
from idiomtune.data.locations import idiolink_folder
from idiomtune.data.names import QueryMode
from idiomtune.encoder.device import has_bf16_instructions
from idiomtune.objectives.idiolink import IdioLinkOptions
from idiomtune.training.objective import build_objective
from tests.tiny_runs import composed

MODES: tuple[QueryMode, ...] = ("sentence", "span", "instruction_sentence", "instruction_span")
Precision = Literal["fp32", "bf16"]
Task = Literal["tuples", "scorecard"]
TASKS: tuple[Task, ...] = get_args(Task)


class Texts(NamedTuple):
    """One training tuple's."""

    query: str
    positive: str
    negatives: list[str]


@dataclass(frozen=True)
class Workload:
    """A short fine-tuning on IdioLink's tuples, or all query modes of `val` scored.

    The loss is the released recipe's with `MultipleNegativesRankingLoss`' denominator: every positive and
    every negative of the batch, none masked. So all three ways minimise the same function.

    Attributes:
        data: `sample`, or the folder with IdioLink.
        model: a model folder; None = the packaged MiniLM.
        steps: optimizer steps, the first of which is not timed.
        batch_size: tuples a step.
        precision: of training; scores are made in float32 by all ways.
        dropout: whether the model's dropout is on; the ways then draw different random numbers.
        device: `cpu`, or another that torch knows.
    """

    data: str
    model: str | None = None
    task: Task = "tuples"
    steps: int = 5
    batch_size: int = 32
    precision: Precision = "fp32"
    dropout: bool = False
    device: str = "cpu"

    @property
    def is_training(self) -> bool:
        return self.task == "tuples"

    def settings(self) -> TrainSettings:
        """Our configuration of it: `idiolink_released`, scored once, after the last step."""
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.idiolink='{self.data}'"]
        modes = f"benchmark.idiolink.query_modes=[{','.join(MODES)}]"
        options = (
            *("+experiment=idiolink_released", *data, "objective.loss.in_batch=all"),
            *("split=val", "benchmark.idiolink.bm25_modes=[]", modes),
            *(*model, f"device={self.device}", f"precision={self.precision}", "objective.drop_last=true"),
            *(f"trainer.max_steps={self.steps}", f"trainer.max_epochs={self.steps}"),
            *(f"eval.every={self.steps}", f"trainer.batch_size={self.batch_size}"),
            # An epoch within a warm-up of 100 steps would leave the weights nearly where they were.
            "trainer.warmup_steps=0",
        )
        settings: TrainSettings = validate(TrainSettings, composed("train", *options))
        return settings


def usual_precisions() -> list[Precision]:
    """Those that this processor has instructions for; any other is many times slower."""
    if has_bf16_instructions():
        return ["fp32", "bf16"]
    print("bf16 is left out: this processor has no instructions for bfloat16", file=sys.stderr, flush=True)
    return ["fp32"]


def real_data() -> str | None:
    """Where the real data lies (`IDIOM_DATA`, else `../shared/data`), if anywhere."""
    folder = Path(os.environ.get("IDIOM_DATA") or ROOT.parent / "shared" / "data")
    return str(folder) if any(folder.glob("**/train/triplets_train_full.jsonl")) else None


def splits(settings: TrainSettings) -> tuple[Split, Split]:
    """What is trained on, and what is scored."""
    root = idiolink_folder(settings.inputs)
    return load_split(root, "train"), load_split(root, "val")


def released_tuples(workload: Workload) -> list[Texts]:
    """IdioLink's tuples that are trained on, in the file's order."""
    root = idiolink_folder(workload.settings().inputs)
    split = load_split(root, "train")
    sentence_of = {r.id: r.sentence for r in (*split.documents, *split.queries)}
    return [
        Texts(
            sentence_of[t.anchor],
            sentence_of[t.positives[0]],
            [sentence_of[i] for i in (*t.hard, *t.soft)],
        )
        for t in read_released(released_file(root, "train"), split)
    ]


def batches(workload: Workload) -> list[list[Texts]]:
    """The texts of each step, in our own order, so that all ways train on the same."""
    settings = workload.settings()
    rows, objective = released_tuples(workload), build_objective(settings)
    steps = itertools.chain.from_iterable(objective.epoch_steps(epoch, 1) for epoch in itertools.count())
    return [[rows[i] for i in step[0]] for step in itertools.islice(steps, workload.steps)]


def optimizer_and_schedule(
    model: nn.Module, settings: TrainSettings
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Those of our loop, for ways that have none of their own."""
    trainer = settings.trainer
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=trainer.learning_rate, weight_decay=trainer.weight_decay
    )
    return optimizer, get_linear_schedule_with_warmup(optimizer, 0, trainer.max_steps)


def temperature(settings: TrainSettings) -> float:
    assert isinstance(settings.objective, IdioLinkOptions)
    return settings.objective.loss.temperature


def without_dropout(model: SentenceTransformer) -> None:
    """Switch off all dropout, so that all ways compute the same function."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
