"""What all ways do: the same model, data, order, seed, loss, optimizer, precision and scored split."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoTokenizer, MPNetConfig, MPNetModel, get_linear_schedule_with_warmup

from idiomtune.config import TrainSettings, check
from idiomtune.data import magpie
from idiomtune.data.idiolink import Split, load_split, read_released, released_file
from idiomtune.data.locations import idiolink_folder
from idiomtune.data.names import QueryMode
from idiomtune.data.user.load import user_splits
from idiomtune.encoder.device import has_bf16_instructions
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.objectives.idiolink import IdioLinkOptions
from idiomtune.objectives.user_data import UserDataOptions
from idiomtune.requests import Usage
from idiomtune.training.objective import build_objective
from tests.tiny_runs import composed

ROOT = Path(__file__).resolve().parent.parent
MODES: tuple[QueryMode, ...] = ("sentence", "span", "instruction_sentence", "instruction_span")
Precision = Literal["fp32", "bf16"]
Task = Literal["tuples", "pairs", "scored_pairs", "scorecard", "gate"]
TASKS: tuple[Task, ...] = get_args(Task)
_COLUMNS = {"pairs": ("anchor", "positive"), "scored_pairs": ("sentence1", "sentence2", "score")}


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
    """A short fine-tuning, or all query modes of `val` scored, or a gate fitted.

    On IdioLink's `tuples` the loss is the released recipe's with `MultipleNegativesRankingLoss`' denominator:
    every positive and every negative of the batch, none masked. So all three ways minimise the same function.
    `pairs` and `scored_pairs` are a user's own CSV, trained on as `+experiment=own` does: pairs with
    `MultipleNegativesRankingLoss`, scored pairs with `CoSENTLoss`.

    Attributes:
        data: `sample`, or the folder with IdioLink; of a user's own CSV, the file.
        model: a model folder; None = the packaged MiniLM.
        steps: optimizer steps, the first of which is not timed.
        batch_size: tuples a step.
        precision: of training; scores are made in float32 by all ways.
        dropout: whether the model's dropout is on; the ways then draw different random numbers.
        threads: of torch; None = its own choice.
        device: `cpu`, or another that torch knows.
        num_usages: labelled sentences of which a gate is fitted.
    """

    data: str
    model: str | None = None
    task: Task = "tuples"
    steps: int = 5
    batch_size: int = 32
    precision: Precision = "fp32"
    dropout: bool = False
    threads: int | None = None
    device: str = "cpu"
    num_usages: int = 400

    @property
    def is_training(self) -> bool:
        return self.task not in ("scorecard", "gate")

    def settings(self) -> TrainSettings:
        """Our configuration of it: `idiolink_released` or `own`, scored once, after the last step."""
        is_own = self.task in _COLUMNS
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        options = (
            *(["+experiment=own", f"data.train='{self.data}'"] if is_own else self._idiolink()),
            *(*model, f"device={self.device}", f"precision={self.precision}", "objective.drop_last=true"),
            *(f"trainer.max_steps={self.steps}", f"trainer.max_epochs={self.steps}"),
            *(f"eval.every={self.steps}", f"trainer.batch_size={self.batch_size}"),
            # An epoch within a warm-up of 100 steps would leave the weights nearly where they were.
            "trainer.warmup_steps=0",
        )
        settings: TrainSettings = check(TrainSettings, composed("train", *options))
        return settings

    def _idiolink(self) -> list[str]:
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.root='{self.data}'"]
        modes = f"benchmark.idiolink.query_modes=[{','.join(MODES)}]"
        scored = ["split=val", "benchmark.idiolink.bm25_modes=[]", modes]
        return ["+experiment=idiolink_released", *data, *scored, "objective.loss.in_batch=all"]

    def usages(self) -> list[Usage]:
        """The labelled sentences of which a gate is fitted."""
        return magpie.read_project_uses(set())[: self.num_usages]


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


def base_model(folder: Path) -> str:
    """Writes a model of 110 million parameters: MPNet's shape, random weights, MiniLM's tokenizer."""
    MPNetModel(MPNetConfig()).save_pretrained(folder)
    minilm = resolve_model_path(Workload("sample").settings().model.path)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return str(folder)


def on_file(workload: Workload, folder: Path) -> Workload:
    """The same on a user's own CSV, which is written into `folder` and made of IdioLink's tuples.

    No text is in two rows, so that no way can embed two as one. Scored pairs are a query with its positive
    (score 1), a hard negative (0.5) or a soft one (0), in turn.
    """
    columns = _COLUMNS[workload.task]
    path = folder / f"{workload.task}.csv"
    seen: set[str] = set()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for number, texts in enumerate(released_tuples(dataclasses.replace(workload, task="tuples"))):
            turn = number % 3 if len(columns) == 3 else 0
            other = [texts.positive, texts.negatives[0], texts.negatives[-1]][turn]
            if texts.query != other and seen.isdisjoint((texts.query, other)):
                seen.update((texts.query, other))
                writer.writerow([texts.query, other, 1 - turn / 2][: len(columns)])
    return dataclasses.replace(workload, data=str(path))


def splits(settings: TrainSettings) -> tuple[Split, Split]:
    """What is trained on, and what is scored."""
    root = idiolink_folder(settings)
    return load_split(root, "train"), load_split(root, "val")


def released_tuples(workload: Workload) -> list[Texts]:
    """IdioLink's tuples that are trained on, in the file's order."""
    root = idiolink_folder(workload.settings())
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


def _file_rows(settings: TrainSettings) -> list[Texts]:
    """What is trained on of a user's own file, as our objective counts it."""
    examples = user_splits(settings.data.user_data).train
    store, is_scored = examples.store, examples.form == "scored"
    rows = []
    for row, number in enumerate(examples.rows.tolist()):
        first, second = (store.read_text(text) for text in examples.texts(row))
        rows.append(Texts(first, second, [], float(store.scores[number]) if is_scored else None))
    return rows


def batches(workload: Workload) -> list[list[Texts]]:
    """The texts of each step, in our own order, so that all ways train on the same."""
    settings = workload.settings()
    rows = _file_rows(settings) if workload.task in _COLUMNS else released_tuples(workload)
    objective = build_objective(settings)
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
    if isinstance(settings.objective, UserDataOptions):  # of both its losses, by default
        return settings.objective.infonce.temperature
    assert isinstance(settings.objective, IdioLinkOptions)
    return settings.objective.loss.temperature


def without_dropout(model: SentenceTransformer) -> None:
    """Switch off all dropout, so that all ways compute the same function."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
