"""A run that is killed, wherever it then stands, and resumed ends as if it had not been.

Real SIGKILLs of real runs, see :mod:`tests.attempts`: at points drawn from all that the run passes, and at
random times. A failure names the attempt, which is repeated by running the test again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attempts import Attempt, Attempts, Outcome
from tests.tiny_runs import DRAWN, assert_same_run
from train.training.checkpoint import checkpoints, verify
from train.training.run_folder import RunFolder

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
def attempts() -> Iterator[Attempts]:
    started = Attempts()
    yield started
    started.close()


@pytest.fixture(scope="module")
def whole(attempts: Attempts, options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Three evaluations in six steps, the first of which is no longer kept at the end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_options = [*options, "eval.every=2"]
    start = time.perf_counter()
    outcome = attempts(Attempt(str(folder), run_options))
    assert outcome.status == 0, outcome.output
    return Whole(folder, run_options, outcome, time.perf_counter() - start)


def go_on(attempts: Attempts, whole: Whole, folder: Path, **rest: Any) -> Outcome:
    """Start it again as a user does; checks that it goes on from the newest checkpoint there is."""
    if not (folder / "run.json").exists():
        return attempts(Attempt(str(folder), whole.options, **rest))
    saved = max((int(path.name[5:]) for path in folder.glob("step_*")), default=None)
    outcome = attempts(Attempt(str(folder), resume=True, **rest))
    if not outcome.killed or "training" in outcome.points:
        says = f"resuming from {folder}/step_{saved}" if saved else "starting again from step 0"
        assert says in outcome.output
    assert "cannot resume from" not in outcome.output  # what is there under its name is whole
    return outcome


def assert_ends_like(whole: Whole, folder: Path, outcome: Outcome, history: object) -> None:
    assert outcome.status == 0, (history, outcome.output)
    assert_same_run(whole.folder, folder)
    left = [sorted(p.relative_to(f) for p in f.rglob("*")) for f in (whole.folder, folder)]
    assert left[0] == left[1], history


@pytest.mark.parametrize(
    ("what", "then", "number"), [*((*parts, 0) for parts in PARTS), *((*parts, 1) for parts in PARTS[-2:])]
)
def test_killed_at_any_point_and_again(
    tmp_path: Path, attempts: Attempts, whole: Whole, what: str, then: str, number: int
) -> None:
    """First somewhere in one part, then in a later one of the resumed run, then left alone."""
    draw = random.Random(f"{SEED} {what} {number}")
    points = whole.outcome.points
    first = draw.choice([n for n, name in enumerate(points, 1) if name == what and then in points[n:]])
    second = draw.randint(1, points[first:].count(then))  # the resumed run passes at least these
    history = f"killed at point {first}, resumed and killed at {then} {second}"
    killed = attempts(Attempt(str(tmp_path / "run"), whole.options, at=first))
    assert killed.killed
    assert killed.points == whole.outcome.points[:first], history
    assert all(verify(path) is None for path in checkpoints(tmp_path / "run")), history
    killed = go_on(attempts, whole, tmp_path / "run", what=then, at=second)
    assert killed.killed, history
    assert killed.points.count(then) == second
    outcome = go_on(attempts, whole, tmp_path / "run")
    assert_ends_like(whole, tmp_path / "run", outcome, history)


@pytest.mark.parametrize("what", ["record", "metrics", "saving", "best", "report"])
def test_killed_in_the_middle_of_a_write(tmp_path: Path, attempts: Attempts, whole: Whole, what: str) -> None:
    """A few bytes of the file are there, the rest is not: a half line, half weights, half a score card."""
    number = random.Random(f"{SEED} {what}").randint(1, whole.outcome.points.count(what))
    killed = attempts(Attempt(str(tmp_path / "run"), whole.options, at=number, what=what, how="torn"))
    assert killed.killed
    outcome = go_on(attempts, whole, tmp_path / "run")
    assert_ends_like(whole, tmp_path / "run", outcome, f"killed in a write at {what} {number}")


def test_killed_at_random_times(tmp_path: Path, attempts: Attempts, whole: Whole) -> None:
    """From outside, up to three times, wherever it then is."""
    draw = random.Random(SEED)
    shares = [draw.uniform(0.1, 0.9) for _ in range(3)]
    for halved in range(8):  # a run may be faster than the first one was, and over before its time
        folder = tmp_path / f"run_{halved}"
        times = [share * whole.seconds / 2**halved for share in shares]
        outcomes = [go_on(attempts, whole, folder, after=after) for after in times]
        if outcomes[0].killed:
            break
    assert outcomes[0].killed
    assert_ends_like(whole, folder, go_on(attempts, whole, folder), times)


@pytest.mark.parametrize("what", ["record", "metrics", "saving", "best", "report"])
def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, attempts: Attempts, whole: Whole, what: str
) -> None:
    """Whatever was being written when the disk ran full then; with space again, it ends as it would have."""
    number = random.Random(f"{SEED} {what}").randint(1, whole.outcome.points.count(what))
    failed = attempts(Attempt(str(tmp_path / "run"), whole.options, at=number, what=what, how="full"))
    history = f"full at {what} {number}"
    assert failed.status == 2, history
    message = failed.output.rpartition("error: ")[2]
    assert "File too large" in message or "No space left on device" in message, (history, failed.output)
    newest = max((int(path.name[5:]) for path in (tmp_path / "run").glob("step_*")), default=None)
    assert (f": {tmp_path}/run/step_{newest}" if newest else "No checkpoint is saved yet") in message
    outcome = go_on(attempts, whole, tmp_path / "run")
    assert_ends_like(whole, tmp_path / "run", outcome, history)


def few_idioms(real: Path, folder: Path) -> Path:
    """Of the first two idioms of each split: a quarter of the real queries, an eighth of the documents."""
    for split in ("train", "val"):
        idioms = sorted({r["idiom"] for r in json.loads((real / split / "queries.json").read_text())})[:2]
        (folder / split).mkdir(parents=True)
        for name, every in (("queries.json", 4), ("indexes.json", 8)):
            records = json.loads((real / split / name).read_text(encoding="utf-8"))
            kept = json.dumps([record for record in records if record["idiom"] in idioms][::every])
            (folder / split / name).write_text(kept, encoding="utf-8")
    return folder


def test_the_real_model_on_real_data_killed_twice(
    tmp_path: Path, attempts: Attempts, real_data: Path
) -> None:
    """In training and while its checkpoint is saved, one after the other in one run."""
    data = few_idioms(real_data / "idiolink", tmp_path / "data")
    options = [
        *(*DRAWN, f"data.root={data}", "device=cpu", "trainer.batch_size=2"),
        *("trainer.max_steps=2", "eval.every=1", "trainer.monitor=idiolink/val/sentence/ndcg@10"),
        *(
            "benchmark=[idiolink]",
            "benchmark.idiolink.query_modes=[sentence]",
            "benchmark.idiolink.bm25_modes=[]",
        ),
        "benchmark.idiolink.split=val",
    ]
    outcome = attempts(Attempt(str(tmp_path / "whole"), options))
    assert outcome.status == 0, outcome.output
    whole, folder = Whole(tmp_path / "whole", options, outcome, 0), tmp_path / "run"
    first = options
    second_step = outcome.points.count("training")  # the last pass of all, after the first was saved
    for what, number in (("training", second_step), ("saving", 20)):
        killed = attempts(Attempt(str(folder), first, resume=not first, what=what, at=number))
        assert killed.killed
        assert killed.points[-1] == what
        first = []
    assert_ends_like(whole, folder, go_on(attempts, whole, folder), "killed twice")


def test_the_kills_above_leave_no_part_of_a_run_out(whole: Whole) -> None:
    assert set(whole.outcome.points) == {part for parts in PARTS for part in parts}
    assert json.loads((whole.folder / "run.json").read_text())["status"] == "finished"
    assert len(RunFolder(whole.folder).metrics()) == 9
