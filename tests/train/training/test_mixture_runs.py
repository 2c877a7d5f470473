"""Runs of a mixture of three parts on a tiny model: resumed, scored, recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.own_data import mixture_options
from tests.tiny_runs import metrics, train
from train.training.run_folder import read_config

pytestmark = pytest.mark.slow


def test_each_part_of_a_mixture_is_scored_and_recorded(tmp_path: Path, tiny_path: Path) -> None:
    options = [
        *(*mixture_options(tmp_path), "data=sample", "device=cpu", "model=pretrained"),
        *(f"model.path={tiny_path}", "trainer.batch_size=48", "trainer.max_epochs=2"),
        "trainer.learning_rate=1e-3",
    ]
    train(tmp_path / "whole", options)
    steps = [line for line in metrics(tmp_path / "whole") if "loss" in line]
    parts = {key.partition("/")[0] for line in steps for key in line if key.endswith("/loss")}
    assert parts == {"faq", "rated", "idioms"}
    scores = json.loads((tmp_path / "whole" / "scores.json").read_text())["scores"]
    assert {"own_val/faq/ndcg@10", "own_val/rated/spearman"} <= scores.keys()
    mean = (scores["own_val/faq/score"] + scores["own_val/rated/score"]) / 2
    assert scores["own_val/score"] == pytest.approx(mean)
    recorded = read_config(tmp_path / "whole")["objective"]["parts"]
    assert recorded["idioms"]["options"]["loss"]["temperature"] == 0.03
    assert recorded["faq"]["options"]["infonce"]["temperature"] == 0.05
    assert (recorded["rated"]["batch_size"], recorded["rated"]["data"]["val_share"]) == (12, 0.1)
