"""Each option reaches the object that it is for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tiny_runs import composed
from train.build import build_benchmarks, build_objective, resolve_model_path
from train.errors import UserError
from train.objectives.idiolink import IdioLinkObjective
from train.settings import TrainSettings, check


def settings(*overrides: str) -> TrainSettings:
    checked: TrainSettings = check(TrainSettings, composed("config", "data=sample", *overrides))
    return checked


def objective(*overrides: str) -> Any:
    built = build_objective(settings(*overrides))
    assert isinstance(built, IdioLinkObjective)
    return built


def num_anchors(built: Any) -> int:
    return sum(len(shard) for step in built.plan(0, 1) for shard in step)


def test_every_option_of_the_loss() -> None:
    loss = objective(
        "objective.loss.temperature=0.3",
        "objective.loss.denominator=all_positives",
        "objective.loss.hard_weight=2.0",
        "objective.loss.soft_weight=0.5",
    )._loss
    got = (loss.temperature, loss.denominator, loss.hard_weight, loss.soft_weight)
    assert got == (0.3, "all_positives", 2.0, 0.5)


@pytest.mark.parametrize("in_batch", ["none", "positives", "all"])
@pytest.mark.parametrize("false_negatives", ["keep", "mask", "positive"])
def test_masks(in_batch: str, false_negatives: str) -> None:
    built = objective(
        f"objective.loss.in_batch={in_batch}", f"objective.loss.false_negatives={false_negatives}"
    )
    assert (built.in_batch, built.false_negatives) == (in_batch, false_negatives)


def test_anchors() -> None:
    assert num_anchors(objective()) == 24
    assert num_anchors(objective("objective.documents_as_queries=true")) == 144
    assert num_anchors(objective("objective.split=val")) == 12


def test_batches() -> None:
    assert len(objective("trainer.batch_size=10").plan(0, 1)) == 3
    assert len(objective("trainer.batch_size=10", "objective.drop_last=true").plan(0, 1)) == 2
    assert objective("seed=1").plan(0, 1) != objective("seed=2").plan(0, 1)


def test_redrawing() -> None:
    fixed, redrawn = objective(), objective("objective.redraw=true")
    assert fixed.batch(0, [0]).requests == fixed.batch(1, [0]).requests
    assert redrawn.batch(0, [0]).requests != redrawn.batch(1, [0]).requests
    assert objective("seed=1").batch(0, [0]).requests != objective("seed=2").batch(0, [0]).requests


def test_tuple_sizes_and_query_modes() -> None:
    built = objective(
        *("objective.num_positives=2", "objective.num_hard=3", "objective.num_soft=4"),
        "objective.query_mode=[sentence,span,instruction_span]",
    )
    requests = built.batch(0, [0]).requests
    assert [r.role for r in requests] == ["query"] * 3 + ["document"] * 9
    assert [r.pooling for r in requests[:3]] == ["sentence", "span", "span"]


def test_released_tuples_are_the_files() -> None:
    built = objective("objective.tuples=released")
    assert (
        built.batch(0, [0]).requests
        == objective("objective.tuples=released", "seed=7").batch(5, [0]).requests
    )
    assert any(path.name == "triplets_train_full.jsonl" for path in built.files)


def test_split_wins_over_the_benchmarks_own() -> None:
    monitor = "trainer.monitor=idiolink/test/sentence/ndcg@10"
    (own,) = build_benchmarks(settings("benchmark.idiolink.split=test", monitor))
    (top,) = build_benchmarks(settings("split=[test,val+train]", monitor))
    assert [s.name for s in own.splits] == ["test"]  # type: ignore[attr-defined]
    assert [s.name for s in top.splits] == ["test", "val+train"]  # type: ignore[attr-defined]


def test_package_paths() -> None:
    assert resolve_model_path("a/b") == "a/b"
    assert resolve_model_path("package:train/data").endswith("/train/data")
    with pytest.raises(UserError, match="pip install no-such-package"):
        resolve_model_path("package:no_such_package/model")
