"""The command in a model's card, and the scores of one: as a user types it, whatever was recorded of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from idiomtune.hub.card import command, eval_results
from tests.planted_runs import plant

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
