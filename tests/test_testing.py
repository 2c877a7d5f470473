"""Objectives and benchmarks of ours and of the examples pass the checks; planted faults do not."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.data.idiolink import load_split
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.objectives.batching import shuffled_steps, split_micro_steps
from idiomtune.requests import EmbeddingRequest
from idiomtune.testing import check_benchmark, check_objective
from tests.own_data import STS, write, write_beir
from tests.programs import ROOT

# ------------------------------------------------------------------ ours, on the sample; objectives: doctests

OWN = ["own_sts", "own_retrieval"]


@pytest.mark.parametrize("name", ["idiolink", "semeval2022", "epsilon", "admire", *OWN])
def test_our_benchmarks(name: str, tmp_path: Path) -> None:
    paths = {
        "own_sts": write(tmp_path / "sts.csv", STS),
        "own_retrieval": write_beir(tmp_path / "search", load_split(SAMPLE_ROOT / "idiolink", "val")),
    }
    chosen = [f"benchmark={name}", f"benchmark.{name}.path={paths[name]}"] if name in paths else []
    check_benchmark(name, *chosen)


# ------------------------------------------------------------------ the example

DATA = ROOT / "examples" / "paraphrases" / "data"


@pytest.fixture
def paraphrases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    return importlib.import_module("paraphrases")


def test_the_example(paraphrases: Any) -> None:
    options = paraphrases.Options(name="paraphrases", temperature=0.1)
    place = f"+data.paraphrases={DATA}"
    assert len(check_objective(options, place, trainer={"batch_size": 4})) == 8

    def read(split: str) -> list[dict[str, str]]:
        return [*csv.DictReader((DATA / f"{split}.csv").read_text(encoding="utf-8").splitlines())]

    check_benchmark(paraphrases.BenchmarkOptions(name="paraphrases", split=["val"]), place)

    class Off(paraphrases.ParaphraseBenchmark):  # type: ignore[misc]
        def score(self, embed: Embed) -> Result:
            result: Result = super().score(embed)
            result.per_query[0]["accuracy"] ^= True
            return result

    splits = {"val": (DATA / "val.csv", [paraphrases.Row.model_validate(row) for row in read("val")])}
    ends_with({"records": "4 records of 4 ids"}, lambda skip: check_benchmark(Off(splits), skip=skip))


# ------------------------------------------------------------------ planted faults


class Sound(Objective):
    """Sentence i and what it means, among the meanings of the batch."""

    def __init__(self, seed: int) -> None:
        self.seed, self.head = seed, nn.Module()

    def describe(self) -> str:
        return "14 sentences"

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        rng = np.random.default_rng([self.seed, epoch])
        return split_micro_steps(shuffled_steps(range(14), 4, rng), num_parts)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        names = [str(anchor) for anchor in anchors]
        return Batch(
            [EmbeddingRequest(f"{what} {n}") for what in ("sentence", "meaning") for n in names], names, None
        )

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        sentences, meanings = self.sides(embeddings)
        logits = functional.normalize(sentences) @ functional.normalize(meanings).T
        loss = functional.cross_entropy(logits, self.labels(len(logits)))
        return ObjectiveLoss(loss, {"texts": len(batch.requests)}, is_empty=len(logits) == 1)

    def sides(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        return embeddings.chunk(2)

    def labels(self, num: int) -> Tensor:
        return torch.arange(num)


EACH, ALONE = (1.0, 1e-9, 1e9), (1.0,)  # of a loss


class Detached(Sound):
    def sides(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        sentences, meanings = embeddings.chunk(2)
        return sentences, meanings.detach()


class BareMean(Sound):
    """Logs a number where the loop takes a `Mean`."""

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        means: Any = {"norm": 3.0}
        return replace(super().loss(embeddings, batch), means=means)


class Shifted(Sound):
    def labels(self, num: int) -> Tensor:
        return (torch.arange(num) + 1) % num


class Remembering(Sound):
    """Draws on what it drew before."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = np.random.default_rng(seed)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        return super().batch(epoch, self.rng.permutation(anchors).tolist())


class Unequal(Sound):
    """Cut by NumPy, which leaves empty parts."""

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        steps = super().epoch_steps(epoch, 1)
        return [[part.tolist() for part in np.array_split(step[0], num_parts)] for step in steps]


class Silent(Sound):
    """Does not say that one anchor has nothing to learn from."""

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        return ObjectiveLoss(super().loss(embeddings, batch).loss)


class Rooted(Sound):
    """The distance has no gradient where it is zero; the spread of one anchor is none."""

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:  # noqa: ARG002
        sentences, meanings = embeddings.chunk(2)
        distances = (sentences - meanings).square().sum(1).sqrt()
        spread = (sentences - sentences.mean(0)).square().sum() / (len(sentences) - 1)
        return ObjectiveLoss(distances.mean() / (1 + spread))


@pytest.mark.parametrize(
    ("objective", "failures", "scales"),
    [
        (Sound, {}, EACH),
        (Detached, {"gradient": "'sentence"}, EACH),
        (BareMean, {"loss": ""}, ALONE),
        (Shifted, {"order": ""}, EACH),
        (Remembering, {"resume": ""}, EACH),
        (Unequal, {"steps": ""}, ALONE),
        (Silent, {"empty": "2 texts"}, ALONE),
        (Rooted, {"loss": ""}, ALONE),
    ],
)
def test_a_planted_objective_fails_for_its_reason_alone(
    objective: type[Sound], failures: dict[str, str], scales: Sequence[float]
) -> None:
    """A sound one passes; the scale of the loss makes no difference."""
    for scale in scales:

        class Scaled(objective):  # type: ignore[misc, valid-type]
            def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
                result: ObjectiveLoss = super().loss(embeddings, batch)
                return replace(result, loss=scale * result.loss)  # noqa: B023

        if failures:
            ends_with(failures, lambda skip: check_objective(Scaled, skip=skip))
        else:
            assert "gradient" in check_objective(Scaled)


def ends_with(failures: dict[str, str], check: Any) -> None:
    """Exactly these checks fail, each with a message like this; without them it passes."""
    with pytest.raises(AssertionError) as caught:
        check([])
    first, *messages = re.split(r"\n  (?=\w+: )", str(caught.value))
    assert first.startswith(f"{len(failures)} of ")
    for name, message in failures.items():
        assert any(re.match(f"(?s){name}: .*{message}", said) for said in messages), messages
    check(list(failures))


class Search(Benchmark):
    """Query i should find document i first."""

    name = "search"

    def score(self, embed: Embed) -> Result:
        asked = [EmbeddingRequest(f"{what} {n}") for what in ("query", "document") for n in range(20)]
        queries, documents = self.normalized(embed(asked)).double().chunk(2)
        right = self.is_right(queries @ documents.T)
        records = [{"id": f"{n}", "accuracy": float(r)} for n, r in enumerate(right)]
        return Result([Score("search", "", "", "accuracy", value=sum(right) / 20)], records)

    def normalized(self, rows: Tensor) -> Tensor:
        return functional.normalize(rows)

    def is_right(self, similarity: Tensor) -> list[bool]:
        others = similarity.masked_fill(torch.eye(len(similarity)).bool(), -2).amax(1)
        right: list[bool] = (similarity.diagonal() > others + 1e-9).tolist()
        return right


class Lenient(Search):
    def is_right(self, similarity: Tensor) -> list[bool]:
        right: list[bool] = (similarity.diagonal() >= similarity.amax(1) - 1e-9).tolist()
        return right


class InPlace(Search):
    def normalized(self, rows: Tensor) -> Tensor:
        return rows.div_(rows.norm(dim=1, keepdim=True))


class Drawn(Search):
    def score(self, embed: Embed) -> Result:  # noqa: ARG002
        return Result([Score("search", "", "", "accuracy", value=float(np.random.random()))])


def test_a_sound_benchmark_passes() -> None:
    assert len(check_benchmark(Search())) == 5


@pytest.mark.parametrize(
    ("planted", "failures"),
    [
        (Lenient, {"ties": "accuracy: 1"}),
        (InPlace, {"untouched": ""}),
        (Drawn, {"repeated": ""}),
    ],
)
def test_a_planted_benchmark_fails_for_its_reason(planted: type[Search], failures: dict[str, str]) -> None:
    ends_with(failures, lambda skip: check_benchmark(planted(), skip=skip))


def test_a_check_that_there_is_not_cannot_be_skipped() -> None:
    with pytest.raises(ValueError, match="gradients"):
        check_objective(Sound, skip=["gradients"])
