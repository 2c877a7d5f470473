"""The benchmarks as an evaluator of sentence-transformers: the scores of the suite, the metric that picks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from idiomtune import Encoder
from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, validate
from idiomtune.errors import UserError
from idiomtune.integrations.sentence_transformers import SCORES_FILE, SuiteEvaluator
from idiomtune.requests import EmbeddingRequest
from tests.benchmarks import benchmarks_of
from tests.tiny_runs import composed

OVERRIDES = ("data=sample", "benchmark.idiolink.query_modes=[sentence,span]", "benchmark.epsilon.orders=10")
KEY = "idiolink/val/span/ndcg@10"
RANKS = "admire/train/caption/rank_difference"


@pytest.fixture
def model(tiny_path: Path) -> SentenceTransformer:
    return SentenceTransformer(str(tiny_path), device="cpu")


def test_scores_are_those_of_the_suite(model: SentenceTransformer, tiny_path: Path, tmp_path: Path) -> None:
    settings: EvaluateSettings = validate(EvaluateSettings, composed("evaluate", *OVERRIDES))
    plain = Suite(benchmarks_of(settings)[0]).run(Encoder.from_pretrained(tiny_path, device="cpu")).scores
    assert {key.partition("/")[0] for key in plain} == {"idiolink", "semeval2022", "epsilon", "admire"}
    model.train()
    evaluator = SuiteEvaluator.from_overrides(*OVERRIDES, primary_metric=KEY)
    scores = evaluator(model, output_path=str(tmp_path), epoch=2.0, steps=30)
    assert scores == pytest.approx(plain)
    assert model.training
    assert (evaluator.primary_metric, evaluator.greater_is_better) == (KEY, True)
    (line,) = (tmp_path / SCORES_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {"epoch": 2.0, "steps": 30, "scores": scores}


def test_a_name_stands_before_every_key(model: SentenceTransformer) -> None:
    plain = SuiteEvaluator.from_overrides("data=sample", "benchmark=[admire]", primary_metric=RANKS)
    with pytest.raises(UserError, match="greater_is_better"):
        SuiteEvaluator(plain.suite.benchmarks, RANKS)(model)
    evaluator = SuiteEvaluator(plain.suite.benchmarks, RANKS, name="captions", greater_is_better=False)
    scores = evaluator(model)
    assert evaluator.primary_metric == f"captions_{RANKS}"
    assert evaluator.primary_metric in scores
    assert not plain.greater_is_better
    assert all(key.startswith("captions_admire/") for key in scores)


def test_wrong_names_are_said_at_the_start() -> None:
    for options, named in (
        ("data=sample benchmark=[admire]", f"primary_metric={KEY}"),
        ("data=sample benchmark=[idiolink] split=nowhere", "nowhere"),
        ("data=smaple", "smaple"),
    ):
        with pytest.raises(UserError, match=named):
            SuiteEvaluator.from_overrides(*options.split(), primary_metric=KEY)


class Broken(Benchmark):
    """A benchmark that can give no score."""

    name = "mine"

    def score(self, embed: Embed) -> Result:
        embed([EmbeddingRequest("one")])
        scores = {"accuracy": math.nan, "median_rank": math.nan, "size": 1.0}
        return Result([Score("mine", "", "", metric, value=value) for metric, value in scores.items()])


def test_a_primary_metric_that_is_nan_is_the_worst(model: SentenceTransformer, tmp_path: Path) -> None:
    for metric, worst in (("mine/accuracy", -math.inf), ("mine/median_rank", math.inf)):
        evaluator = SuiteEvaluator([Broken()], metric, greater_is_better=worst < 0)
        scores = evaluator(model, output_path=str(tmp_path))
        assert scores == {metric: worst, "mine/size": 1.0}
    for line in (tmp_path / SCORES_FILE).read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["scores"] == {"mine/size": 1.0}
