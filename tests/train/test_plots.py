"""Plots are drawn from what benchmarks give, also where there is little to draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.benchmarks import Distributions
from train.plots import violins


@pytest.mark.parametrize(
    "groups",
    [
        {"C": {"a": [0.1, 0.4, 0.2], "b": [0.3, 0.1, 0.5]}, "NC": {"a": [0.2, 0.3], "b": [1.0, 0.0]}},
        {"C": {"a": [0.5], "b": [0.5]}, "NC": {"a": [], "b": []}},
        {"C": {"a": [], "b": []}},
    ],
)
def test_violins(groups: dict[str, dict[str, list[float]]], tmp_path: Path) -> None:
    path = tmp_path / "plots" / "some.png"
    violins(Distributions("title", "values", groups, "how to read it " * 20), path)
    assert path.read_bytes().startswith(b"\x89PNG")
