"""What both ways do: the same model, tuples, order, seed, learning rate and scored split."""

from __future__ import annotations

import itertools
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from tests.tiny_runs import composed
from train.build import build_objective
from train.data.idiolink import Split, load_split
from train.data.sources import idiolink_root
from train.data.tuples import TrainingTuple, read_released, released_file
from train.scorekeys import QueryMode
from train.settings import TrainSettings, check

ROOT = Path(__file__).resolve().parent.parent.parent
MODES: tuple[QueryMode, ...] = ("sentence", "span", "instruction_sentence", "instruction_span")


@dataclass(frozen=True)
class Workload:
    """One short fine-tuning by the released recipe, then all query modes of `val` scored.

    Attributes:
        data: `sample`, or the folder with IdioLink.
        model: a model folder; None = the packaged MiniLM.
        steps: optimizer steps.
        batch_size: tuples a step.
        dropout: whether the model's dropout is on; the two ways then draw different random numbers.
        threads: of torch; None = its own choice.
    """

    data: str
    model: str | None = None
    steps: int = 13  # an epoch of the released recipe
    batch_size: int = 32
    dropout: bool = False
    threads: int | None = None

    def arguments(self) -> list[str]:
        """The same as arguments of the command line."""
        values = {k.replace("_", "-"): v for k, v in asdict(self).items() if k != "dropout" and v is not None}
        return [f"--{k}={v}" for k, v in values.items()] + ["--dropout"] * self.dropout

    def settings(self) -> TrainSettings:
        """Our configuration of it: `idiolink_released`, scored once, after the last step."""
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.root='{self.data}'"]
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        options = (
            "+experiment=idiolink_released",
            *(*data, *model),
            *("device=cpu", "precision=fp32", "split=val"),
            *(f"trainer.max_steps={self.steps}", f"trainer.max_epochs={self.steps}"),
            *(f"eval.every={self.steps}", f"trainer.batch_size={self.batch_size}"),
            # An epoch within a warm-up of 100 steps would leave the weights nearly where they were.
            *("trainer.warmup_steps=0", "benchmark.idiolink.bm25_modes=[]"),
            f"benchmark.idiolink.query_modes=[{','.join(MODES)}]",
        )
        settings: TrainSettings = check(TrainSettings, composed("config", *options))
        return settings


def real_data() -> str | None:
    """Where the real data lies (`IDIOM_DATA`, else `../shared/data`), if anywhere."""
    folder = Path(os.environ.get("IDIOM_DATA") or ROOT.parent / "shared" / "data")
    return str(folder) if any(folder.glob("**/train/triplets_train_full.jsonl")) else None


def splits(settings: TrainSettings) -> tuple[Split, Split]:
    """What is trained on, and what is scored."""
    root = idiolink_root(settings.data.root, sample=settings.data.sample)
    return load_split(root, "train"), load_split(root, "val")


def batches(settings: TrainSettings) -> list[list[TrainingTuple]]:
    """The tuples of each step, in our own order, so that both ways train on the same."""
    root = idiolink_root(settings.data.root, sample=settings.data.sample)
    tuples = read_released(released_file(root, "train"), load_split(root, "train"))
    objective = build_objective(settings)
    steps = itertools.chain.from_iterable(objective.plan(epoch, 1) for epoch in itertools.count())
    chosen = itertools.islice(steps, settings.trainer.max_steps)
    return [[tuples[i] for i in step[0]] for step in chosen]


def without_dropout(model: SentenceTransformer) -> None:
    """Switch off all dropout, so that the two ways compute the same function."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def set_threads(workload: Workload) -> None:
    if workload.threads is not None:
        torch.set_num_threads(workload.threads)
