"""The command in a model's card: as a user types it, whatever was recorded of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from train.hub.card import command


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (
            ["+experiment=own", "model=pretrained", "model.path='intfloat/e5-base-v2'", "data.train='a.csv'"],
            "+experiment=own model=intfloat/e5-base-v2 data.train=a.csv",
        ),
        (["model=pretrained", "model.path='/home/me/models/mine'", "run_dir='x'"], "'model=…/models/mine'"),
        (["model=pretrained", "model.path='mine'"], "model=pretrained model.path=mine"),  # a folder or not?
        (
            ["data.train='my (1).csv'"],
            "'data.train='\"'\"'my (1).csv'\"'\"''",
        ),  # needed: once more for the shell
    ],
)
def test_quotation_marks_that_nothing_needs_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: list[str], expected: str
) -> None:
    monkeypatch.setattr("train.hub.card.read_run", lambda _: {"experiment": "own"})
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(recorded), encoding="utf-8")
    assert command(tmp_path) == f"python -m train {expected}"
