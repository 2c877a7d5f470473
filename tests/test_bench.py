"""The benchmark: all ways agree, a difference is an error, figures are what they are named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import library, ours, predecessor
from bench.cases import Case, Way
from bench.measure import Measured, Time
from bench.report import compare, disagreements, ratios, table
from bench.workload import Workload
from tests.programs import run as run_program

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workload(tiny_path: Path) -> Workload:
    return Workload("sample", str(tiny_path), steps=4, batch_size=8)


def test_all_ways_give_the_same_losses_and_scores(workload: Workload) -> None:
    """So the library's loss is InfoNCE with every positive and negative of the batch, unmasked."""
    mine, theirs, library_run = (way.run(workload) for way in (ours, predecessor, library))
    assert len(mine.losses) == 4
    assert max(mine.losses) - min(mine.losses) > 1e-2  # other texts, changed weights
    for other in (theirs, library_run):
        assert mine.losses == pytest.approx(other.losses, abs=1e-4)
        assert not disagreements(mine, other, workload)
        assert len(other.times) == 3
    scoring = dataclasses.replace(workload, task="scorecard")
    mine, theirs = ours.run(scoring), predecessor.run(scoring)
    assert len(theirs.scores) == 8
    assert not disagreements(mine, theirs, scoring)


def _measured(*seconds: float, **options: Any) -> Measured:
    return Measured([Time(2 * value, value) for value in seconds], memory=100.0, **options)


def test_a_difference_is_an_error(workload: Workload) -> None:
    mine = _measured(1.0, losses=[2.0, 1.0])
    assert not disagreements(mine, mine, workload)
    other = dataclasses.replace(mine, losses=[2.0, 1.01])
    assert "losses differ" in disagreements(other, mine, workload)[0]
    for looser in ({"precision": "bf16"}, {"dropout": True}):
        changes: Any = looser
        assert not disagreements(other, mine, dataclasses.replace(workload, **changes))
    assert disagreements(dataclasses.replace(mine, losses=[]), mine, workload)
    scoring = dataclasses.replace(workload, task="scorecard")
    scored = _measured(1.0, scores={"a/b": 0.5})
    assert not disagreements(scored, scored, scoring)
    for wrong in ({"a/b": float("nan")}, {}):
        assert "a/b" in disagreements(_measured(1.0, scores=wrong), scored, scoring)[0]


def test_ratios_by_hand(workload: Workload) -> None:
    """Of two rounds with two timed steps each."""
    runs: dict[Way, Sequence[Measured]] = {
        "ours": [_measured(2.0, 4.0), _measured(3.0, 1.0)],
        "sentence_transformers": [_measured(3.0, 4.0), _measured(6.0, 4.0)],
    }
    case = Case("training", workload)
    assert ratios(case, runs) == {"training, against the trainer": [1.5, 1.0, 2.0, 4.0]}
    assert table(runs).splitlines()[1].split() == ["ours", "2.50", "5.00", "100"]
    scoring = Case("scorecard", dataclasses.replace(workload, task="scorecard"))
    assert list(ratios(scoring, runs)) == ["scorecard, against plain encoding"]


def test_slower_is_below_all_that_was_recorded() -> None:
    for now, low, high, verdict in (
        ([1.95], 1.9, 2.2, "(1.90–2.20)"),
        ([2.3], 1.9, 2.2, "faster"),
        ([1.85], 1.9, 2.2, "  slower"),  # beyond the noise, within what is allowed
        ([1.7, 1.5, 1.6], 1.9, 2.2, "SLOWER by 20%"),
        ([1.6], 1.5, 2.5, "(1.50–2.50)"),  # a noisy ratio within its noise
        ([1.4], 1.5, 2.5, "SLOWER by 30%, but of 1 only: no error"),
    ):
        text, failed = compare({"a": now, "b": [1.0]}, {"a": {"median": 2.0, "min": low, "max": high}})
        line, new = text.splitlines()[1:]
        assert line.endswith(verdict)
        assert failed == verdict.endswith("20%")
        assert new.endswith("1.00 (1.00–1.00)")


def test_a_start_ends_with_the_first_step(tiny_path: Path, tmp_path: Path) -> None:
    model = ["model=pretrained", f"model.path='{tiny_path}'"]
    options = ["+experiment=idiolink_ft", "data=sample", "device=cpu", "benchmark=[idiolink]", *model]
    done = run_program("bench.start", *options, f"run_dir='{tmp_path / 'run'}'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "baseline.json").is_file()
    assert not list((tmp_path / "run").glob("step_*"))
