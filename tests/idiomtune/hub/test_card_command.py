"""The command in a model's card, and the scores of one: as a user types it, whatever was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from idiomtune.hub.card import command, eval_results, outcome, telling
from tests.planted_runs import plant, plant_queries

NEEDED = "'data.train='\"'\"'my (1).csv'\"'\"''"  # once more for the shell


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (
            ["model=pretrained", "model.path='intfloat/e5-base-v2'", "data.train='a.csv'"],
            "model=intfloat/e5-base-v2 data.train=a.csv",
        ),
        (["model=pretrained", "model.path='/home/me/models/mine'", "run_dir='x'"], "'model=…/models/mine'"),
        (["model=pretrained", "model.path='mine'"], "model=pretrained model.path=mine"),  # a folder or not?
        (["data.train='my (1).csv'"], NEEDED),
    ],
)
def test_quotation_marks_that_nothing_needs_are_left_out(
    tmp_path: Path, recorded: list[str], expected: str
) -> None:
    run = plant(tmp_path / "run", experiment="own")
    (run / ".hydra").mkdir()
    overrides = run / ".hydra" / "overrides.yaml"
    overrides.write_text(yaml.safe_dump(["+experiment=own", *recorded]), encoding="utf-8")
    assert command(run) == f"idiomtune train +experiment=own {expected}"
    overrides.write_bytes(b"\xad +experiment=own\n")  # damaged: what else is known has to do
    assert command(run).startswith("idiomtune train +experiment=own")


def test_a_card_takes_scores_without_a_split() -> None:
    (result,) = eval_results({"mybench/accuracy": 0.5})
    assert (result.dataset_split, result.metric_type, result.dataset_type) == (None, "accuracy", "mybench")


def test_figures_that_cannot_tell_models_apart_are_left_out() -> None:
    scores = {"scores": {"a": 1.0, "b": 1.0, "c": 0.5}, "baseline": {"a": 1.0, "b": 0.9, "c": 0.5}}
    assert telling(scores) == {"b": 1.0, "c": 0.5}
    assert telling({"scores": {"a": 1.0}}) == {"a": 1.0}


def test_a_card_says_that_training_did_not_help(tmp_path: Path) -> None:
    """On how many queries of how many groups; not of another checkpoint's scores."""
    queries = [f"{idiom}{number}" for idiom in "ab" for number in range(4)]
    low, high = dict.fromkeys(queries, 0.2), dict.fromkeys(queries, 0.8)
    helped, lost = plant_queries(tmp_path / "helped", high, low), plant_queries(tmp_path / "lost", low, high)
    scores = {run: json.loads((run / "scores.json").read_text(encoding="utf-8")) for run in (helped, lost)}
    assert outcome(helped, scores[helped]) == []
    (said,) = outcome(lost, scores[lost])
    assert said.startswith("on 8 queries of 2 groups, this model does NOT beat")
    assert outcome(lost, scores[helped]) == []
