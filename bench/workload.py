"""What all ways do: the same model, data, order, seed, loss, optimizer, precision and scored split."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import get_linear_schedule_with_warmup

from idiomtune.config import TrainSettings, check
from idiomtune.data.idiolink import Split, load_split, read_released, released_file
from idiomtune.data.locations import idiolink_folder
from idiomtune.data.names import QueryMode
from idiomtune.data.user.load import user_splits
from idiomtune.encoder.device import has_bf16_instructions
from idiomtune.objectives.idiolink import IdioLinkOptions
from idiomtune.objectives.user_data import UserDataOptions
from idiomtune.training.objective import build_objective
from tests.tiny_runs import composed

ROOT = Path(__file__).resolve().parent.parent
MODES: tuple[QueryMode, ...] = ("sentence", "span", "instruction_sentence", "instruction_span")
Precision = Literal["fp32", "bf16"]
Kind = Literal["tuples", "pairs", "scored"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def usual_precisions() -> list[Precision]:
    """Those that this processor has instructions for; any other is many times slower."""
    if has_bf16_instructions():
        return ["fp32", "bf16"]
    print("bf16 is left out: this processor has no instructions for bfloat16", file=sys.stderr, flush=True)
    return ["fp32"]


class Texts(NamedTuple):
    """One training tuple's, or a row's of a user's own file.

    Attributes:
        score: of a scored pair, which `query` and `positive` are.
    """

    query: str
    positive: str
    negatives: list[str]
    score: float | None = None


@dataclass(frozen=True)
class Workload:
    """One short fine-tuning on the released tuples, then all query modes of `val` scored.

    The loss is the released recipe's with `MultipleNegativesRankingLoss`' denominator: every positive and
    every negative of the batch, none masked. So all three ways minimise the same function.

    Of another kind than `tuples`, the data are a CSV (:mod:`bench.own_files`), trained on as
    `+experiment=own` does: pairs with `MultipleNegativesRankingLoss`, scored pairs with `CoSENTLoss`.

    Attributes:
        data: `sample`, or the folder with IdioLink; of another kind, the file.
        model: a model folder; None = the packaged MiniLM.
        steps: optimizer steps, the first of which is not timed; 0 = scored as it is.
        batch_size: tuples a step.
        precision: of training; scores are made in float32 by all ways.
        dropout: whether the model's dropout is on; the ways then draw different random numbers.
        score: whether val is scored after training.
        threads: of torch; None = its own choice.
        device: `cpu`, or another that torch knows.
    """

    data: str
    model: str | None = None
    steps: int = 5
    batch_size: int = 32
    precision: Precision = "fp32"
    dropout: bool = False
    score: bool = True
    threads: int | None = None
    kind: Kind = "tuples"
    device: str = "cpu"

    def arguments(self) -> list[str]:
        """The same as arguments of the command line."""
        values = {k.replace("_", "-"): v for k, v in asdict(self).items() if v is not None}
        flags = ["--dropout" if values.pop("dropout") else "--no-dropout"]
        flags += ["--no-score"] * (not values.pop("score"))
        return [f"--{k}={v}" for k, v in values.items()] + flags

    def settings(self) -> TrainSettings:
        """Our configuration of it: `idiolink_released` or `own`, scored once, after the last step."""
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        steps = max(self.steps, 1)
        options = (
            *(self._own_file() if self.kind != "tuples" else self._idiolink()),
            *(*model, f"device={self.device}", f"precision={self.precision}", "objective.drop_last=true"),
            *(f"trainer.max_steps={steps}", f"trainer.max_epochs={steps}"),
            *(f"eval.every={steps}", f"trainer.batch_size={self.batch_size}"),
            # An epoch within a warm-up of 100 steps would leave the weights nearly where they were.
            "trainer.warmup_steps=0",
        )
        settings: TrainSettings = check(TrainSettings, composed("config", *options))
        return settings

    def _own_file(self) -> list[str]:
        return ["+experiment=own", f"data.train='{self.data}'"]

    def _idiolink(self) -> list[str]:
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.root='{self.data}'"]
        modes = f"benchmark.idiolink.query_modes=[{','.join(MODES)}]"
        scored = ["split=val", "benchmark.idiolink.bm25_modes=[]", modes]
        return ["+experiment=idiolink_released", *data, *scored, "objective.loss.in_batch=all"]


def real_data() -> str | None:
    """Where the real data lies (`IDIOM_DATA`, else `../shared/data`), if anywhere."""
    folder = Path(os.environ.get("IDIOM_DATA") or ROOT.parent / "shared" / "data")
    return str(folder) if any(folder.glob("**/train/triplets_train_full.jsonl")) else None


def splits(settings: TrainSettings) -> tuple[Split, Split]:
    """What is trained on, and what is scored."""
    root = idiolink_folder(settings)
    return load_split(root, "train"), load_split(root, "val")


def released_tuples(settings: TrainSettings) -> list[Texts]:
    """IdioLink's tuples that are trained on, in the file's order."""
    root = idiolink_folder(settings)
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


def file_rows(settings: TrainSettings) -> list[Texts]:
    """What is trained on of a user's own file, as our objective counts it."""
    examples = user_splits(settings.data.user_data).train
    store, is_scored = examples.store, examples.form == "scored"
    rows = []
    for row, number in enumerate(examples.rows.tolist()):
        first, second = (store.read_text(text) for text in examples.texts(row))
        rows.append(Texts(first, second, [], float(store.scores[number]) if is_scored else None))
    return rows


def batches(settings: TrainSettings) -> list[list[Texts]]:
    """The texts of each step, in our own order, so that all ways train on the same."""
    is_own = isinstance(settings.objective, UserDataOptions)
    rows = file_rows(settings) if is_own else released_tuples(settings)
    objective = build_objective(settings)
    steps = itertools.chain.from_iterable(objective.epoch_steps(epoch, 1) for epoch in itertools.count())
    taken = itertools.islice(steps, settings.trainer.max_steps)
    return [[rows[i] for i in step[0]] for step in taken]


def optimizer_and_schedule(
    model: nn.Module, settings: TrainSettings
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Those of our loop, for ways that have none of their own."""
    trainer = settings.trainer
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=trainer.learning_rate, weight_decay=trainer.weight_decay
    )
    total = trainer.max_steps
    return optimizer, get_linear_schedule_with_warmup(optimizer, 0, total)


def temperature(settings: TrainSettings) -> float:
    if isinstance(settings.objective, UserDataOptions):  # of both its losses, by default
        return settings.objective.infonce.temperature
    assert isinstance(settings.objective, IdioLinkOptions)
    return settings.objective.loss.temperature


def without_dropout(model: SentenceTransformer) -> None:
    """Switch off all dropout, so that all ways compute the same function."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def set_threads(workload: Workload) -> None:
    if workload.threads is not None:
        torch.set_num_threads(workload.threads)
