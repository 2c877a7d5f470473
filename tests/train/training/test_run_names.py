"""Names of run folders: short, telling, and never with a path or the same twice."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from train.io.files import numbered
from train.programs.folders import run_name


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([], ""),
        (["+experiment=idiolink_ft", "trainer.batch_size=64", "seed=3"], "_seed-3_batch_size-64"),
        (["data.root=/home/me/data", "device=cpu", "hub.repo_id=me/x", "tracking=wandb"], ""),
        (["model=pretrained", "model.path='/home/me/models/mine'"], "_model-mine"),
        (["model=e5_base", "data=sample"], "_model-e5_base_data-sample"),
        (["objective.query_mode=[sentence,span]"], "_query_mode--sentence-span"),
        (["trainer.monitor=" + "x" * 200, "seed=1"], "_seed-1_monitor-" + "x" * 24),
    ],
)
def test_what_differs_is_told(overrides: list[str], told: str) -> None:
    name = run_name(overrides)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d" + re.escape(told), name), name


def test_a_chosen_name_stands_for_the_options() -> None:
    assert run_name(["seed=3", "name='my run/1'"], "my run/1").endswith("_my-run-1")
    assert run_name(["seed=3"], "日本").endswith("_seed-3")  # nothing of it can be in a folder's name
    assert run_name([], "x" * 59 + ".5").endswith("_" + "x" * 59)


def test_a_name_is_short_and_cut_between_options() -> None:
    name = run_name([f"objective.option_{i}=value_{i}" for i in range(20)] + ["seed=7"])
    assert len(name) <= 80
    assert "_seed-7_option_0-value_0_" in name
    assert re.search(r"_option_\d+-value_\d+$", name)


def test_numbers_follow() -> None:
    names = [path.name for path in itertools.islice(numbered(Path("a/run")), 3)]
    assert names == ["run", "run-2", "run-3"]
