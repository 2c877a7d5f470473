"""A run that is killed, wherever it then stands, and resumed ends as if it had not been.

Real SIGKILLs of real runs, see :mod:`tests.attempts`: at points drawn from all that the run passes, and at
random times. A failure names the attempt, which is repeated by running the test again.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from idiomtune.training.checkpoint import checkpoints, verify
from idiomtune.training.run_folder import RunFolder
from tests.attempts import Attempt, Outcome, attempted
from tests.tiny_runs import assert_same_run, files_of

pytestmark = pytest.mark.slow

SEED = 7
# All that a run passes: a part of it, and one that comes later, also in the run that is resumed.
PARTS = [
    *(("record", "report"), ("baseline", "metrics"), ("training", "scoring"), ("saving", "re-scoring")),
    ("best", "pruning"),
]


@dataclass(frozen=True)
class Whole:
    """The run that was not killed: where it is, how it went, and how long it took."""

    folder: Path
    options: list[str]
    outcome: Outcome
    seconds: float


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Three evaluations in six steps, the first of which is no longer kept at the end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_options = [*options, "eval.every=2"]
    start = time.perf_counter()
    outcome = attempted(Attempt(str(folder), run_options))
    assert outcome.status == 0, outcome.output
    return Whole(folder, run_options, outcome, time.perf_counter() - start)


def go_on(whole: Whole, folder: Path, **rest: Any) -> Outcome:
    """Start it again as a user does; checks that it goes on from the newest checkpoint there is."""
    if not (folder / "run.json").exists():
        return attempted(Attempt(str(folder), whole.options, **rest))
    saved = max((int(path.name[5:]) for path in folder.glob("step_*")), default=None)
    outcome = attempted(Attempt(str(folder), resume=True, **rest))
    if outcome.status == 0 or "training" in outcome.points:
        says = f"resuming from {folder}/step_{saved}" if saved else "starting again from step 0"
        assert says in outcome.output
    assert "cannot resume from" not in outcome.output  # what is there under its name is whole
    return outcome


def assert_ends_like(whole: Whole, folder: Path, outcome: Outcome, history: object) -> None:
    assert outcome.status == 0, (history, outcome.output)
    assert_same_run(whole.folder, folder)
    assert files_of(whole.folder) == files_of(folder), history


@pytest.mark.parametrize(("what", "then"), PARTS)
def test_killed_at_any_point_and_again(tmp_path: Path, whole: Whole, what: str, then: str) -> None:
    """First somewhere in one part, then in a later one of the resumed run, then left alone."""
    draw = random.Random(f"{SEED} {what}")
    points = whole.outcome.points
    first = draw.choice([n for n, name in enumerate(points, 1) if name == what and then in points[n:]])
    second = draw.randint(1, points[first:].count(then))  # the resumed run passes at least these
    history = f"killed at point {first}, resumed and killed at {then} {second}"
    killed = attempted(Attempt(str(tmp_path / "run"), whole.options, at=first))
    assert killed.killed
    assert killed.points == whole.outcome.points[:first], history
    assert all(verify(path) is None for path in checkpoints(tmp_path / "run")), history
    killed = go_on(whole, tmp_path / "run", what=then, at=second)
    assert killed.killed, history
    assert killed.points.count(then) == second
    outcome = go_on(whole, tmp_path / "run")
    assert_ends_like(whole, tmp_path / "run", outcome, history)


@pytest.mark.parametrize("what", ["record", "metrics", "saving", "best", "report"])
def test_killed_in_a_write_and_then_out_of_space(tmp_path: Path, whole: Whole, what: str) -> None:
    """A half line, half weights, half a score card lose nothing; nor does a full disk, which is reported."""
    folder = tmp_path / "run"
    draw, points = random.Random(f"{SEED} {what}"), whole.outcome.points
    number = draw.randint(1, points.count(what))
    killed = attempted(Attempt(str(folder), whole.options, at=number, what=what, how="torn"))
    assert killed.killed
    again = draw.randint(1, max(points.count(what) - number, 1))  # the resumed run passes at least these
    history = f"killed in a write at {what} {number}, resumed and full at {again}"
    failed = go_on(whole, folder, at=again, what=what, how="full")
    assert failed.status == 2, (history, failed.output)
    message = failed.output.rpartition("error: ")[2]
    assert "File too large" in message or "No space left on device" in message, (history, failed.output)
    newest = max((int(path.name[5:]) for path in folder.glob("step_*")), default=None)
    assert (f": {folder}/step_{newest}" if newest else "No checkpoint is saved yet") in message
    assert_ends_like(whole, folder, go_on(whole, folder), history)


def test_killed_at_random_times(tmp_path: Path, whole: Whole) -> None:
    """From outside, up to three times, wherever it then is."""
    draw = random.Random(SEED)
    shares = [draw.uniform(0.1, 0.9) for _ in range(3)]
    for halved in range(8):  # a run may be faster than the first one was, and over before its time
        folder = tmp_path / f"run_{halved}"
        times = [share * whole.seconds / 2**halved for share in shares]
        outcomes = [go_on(whole, folder, after=after) for after in times]
        if outcomes[0].killed:
            break
    assert outcomes[0].killed
    assert_ends_like(whole, folder, go_on(whole, folder), times)


def test_the_kills_above_leave_no_part_of_a_run_out(whole: Whole) -> None:
    assert set(whole.outcome.points) == {part for parts in PARTS for part in parts}
    assert json.loads((whole.folder / "run.json").read_text())["status"] == "finished"
    assert len(RunFolder(whole.folder).metrics()) == 9
