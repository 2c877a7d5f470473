"""Inputs that would take a run's memory or time without end, each refused with a message."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.mistakes import PAIRS, Mistake, run_mistake
from train.errors import UserError
from train.io import tables
from train.io.tables import read_rows

PART = "{data: {train: train.csv, val_share: 0.25}"


@pytest.mark.slow
def test_a_part_too_rare_to_be_trained(tmp_path: Path, tiny_path: Path) -> None:
    parts = f"+objective.parts={{a: {PART}}}, b: {PART}, proportion: 1e-300}}}}"
    mistake = Mistake(
        "proportion",
        ["+experiment=mixture", "device=cpu", parts],
        ["b", "proportion=1e-300", "at least 0.001"],
        {"train.csv": PAIRS},
    )
    run_mistake(mistake, tmp_path, tiny_path)


@pytest.mark.parametrize("name", ["long.jsonl.gz", "long.tsv.gz", "long.csv"])
def test_a_line_without_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a packed one, which takes little of the disk: no more of it is read than the limit."""
    monkeypatch.setattr(tables, "_MAX_LINE", 1000)
    content = b"question\nwhat\n" + b"x" * 2000
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(UserError, match=r"line \d: has more than 1,000 characters") as refused:
        list(read_rows(path))
    assert str(path) in str(refused.value)
