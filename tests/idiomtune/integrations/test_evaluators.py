"""The benchmarks as an evaluator of sentence-transformers: the scores of the suite, the metric that picks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from idiomtune.benchmarks import Embed, Result, Score, build_benchmarks
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, check
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.integrations.sentence_transformers import SCORES_FILE, SuiteEvaluator
from idiomtune.requests import Request
from tests.tiny_runs import composed

OVERRIDES = ("data=sample", "benchmark.idiolink.query_modes=[sentence,span]", "benchmark.epsilon.orders=10")
KEY = "idiolink/val/span/ndcg@10"


def test_all_benchmarks_as_the_suite_scores_them(tiny_path: Path, tmp_path: Path) -> None:
    settings: EvaluateSettings = check(EvaluateSettings, composed("evaluate", *OVERRIDES))
    plain = Suite(build_benchmarks(settings)[0]).run(Encoder.from_pretrained(tiny_path, device="cpu")).scores
    assert {key.partition("/")[0] for key in plain} == {"idiolink", "semeval2022", "epsilon", "admire"}

    model = SentenceTransformer(str(tiny_path), device="cpu")
    model.train()
    evaluator = SuiteEvaluator.from_overrides(*OVERRIDES, primary_metric=KEY)
    scores = evaluator(model, output_path=str(tmp_path), epoch=2.0, steps=30)
    assert scores == pytest.approx(plain)
    assert model.training
    assert (evaluator.primary_metric, evaluator.greater_is_better) == (KEY, True)
    (line,) = (tmp_path / SCORES_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {"epoch": 2.0, "steps": 30, "scores": scores}


def test_a_name_stands_before_every_key(tiny_path: Path) -> None:
    benchmarks = SuiteEvaluator.from_overrides(
        *("data=sample", "benchmark=[admire]"), primary_metric="admire/train/caption/rank_difference"
    ).suite.benchmarks
    evaluator = SuiteEvaluator(benchmarks, "admire/train/caption/rank_difference", name="captions")
    scores = evaluator(SentenceTransformer(str(tiny_path), device="cpu"))
    assert evaluator.primary_metric == "captions_admire/train/caption/rank_difference"
    assert evaluator.primary_metric in scores
    assert not evaluator.greater_is_better
    assert all(key.startswith("captions_admire/") for key in scores)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data=sample", "benchmark=[admire]"), "give no such score; they give admire/"),
        (("data=sample", "benchmark=[idiolink]", "split=nowhere"), "nowhere"),
        (("data=smaple",), "smaple"),
    ],
)
def test_wrong_names_are_said_at_the_start(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SuiteEvaluator.from_overrides(*overrides, primary_metric=KEY)


def test_prompts_are_the_models_own(tiny_path: Path) -> None:
    """Queries and documents are written as the model has it: the scores are those of the folder."""
    model = SentenceTransformer(
        str(tiny_path), device="cpu", prompts={"query": "find: ", "passage": "text: "}
    )
    around = Encoder.around(model)
    assert (around.prompts.query, around.prompts.document) == ("find: ", "text: ")
    model.prompts["instruction"] = "no place for the query"
    with pytest.raises(UserError, match="instruction prompt"):
        Encoder.around(model)


class Broken:
    """A benchmark that can give no score."""

    name = "mine"
    files = ()
    without_gold = ()

    def score(self, embed: Embed) -> Result:
        embed([Request("one")])
        scores = {"accuracy": math.nan, "median_rank": math.nan, "size": 1.0}
        return Result([Score("mine", "", "", metric, value=value) for metric, value in scores.items()])


@pytest.mark.parametrize(("metric", "worst"), [("mine/accuracy", -math.inf), ("mine/median_rank", math.inf)])
def test_a_primary_metric_that_is_nan_is_the_worst_there_is(
    tiny_path: Path, tmp_path: Path, metric: str, worst: float
) -> None:
    evaluator = SuiteEvaluator([Broken()], metric)
    scores = evaluator(SentenceTransformer(str(tiny_path), device="cpu"), output_path=str(tmp_path))
    assert scores == {metric: worst, "mine/size": 1.0}
    line = json.loads((tmp_path / SCORES_FILE).read_text(encoding="utf-8"))
    assert line["scores"] == {"mine/size": 1.0}
