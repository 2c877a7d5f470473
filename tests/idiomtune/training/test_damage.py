"""Damaged files: the run resumes from a checkpoint that is whole, reports it, and ends as it would have."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiomtune.io.run_files import checkpoints, verify
from idiomtune.training.checkpoint import TrainerState
from idiomtune.training.loop import monitored_scores
from idiomtune.training.run_folder import contains_run
from tests.tiny_runs import assert_same_run, at_loss, die, resume, train

Damage = Callable[[Path], object]
NESTED = "[" * 10_000


def flipped(path: Path) -> None:
    """In place, as a disk does it: a hard link to the file would be damaged with it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def with_content(content: str) -> Damage:
    return lambda path: path.write_text(content, encoding="utf-8")


def first_is_best(state: TrainerState, scores: Any, trainer: Any) -> bool:
    """In place of the scores, which may rank otherwise on another processor."""
    improved = state.best_step is None
    if improved:
        state.best_score, state.best_step = monitored_scores(scores, trainer), state.step
    return improved


@pytest.fixture(autouse=True)
def _first_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiomtune.training.loop.update_best", first_is_best)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> Path:
    """Steps 2, 4 and 6 were scored, and step 2 is the best."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiomtune.training.loop.update_best", first_is_best)
        train(folder, [*options, "eval.every=2"])
    assert [path.name for path in checkpoints(folder)] == ["step_2", "step_4", "step_6"]
    for path in (folder / "best").rglob("*"):  # no links to the same blocks
        twin = folder / "step_2" / path.relative_to(folder / "best")
        assert path.is_dir() or not twin.exists() or not path.samefile(twin), path
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


# What is damaged → the step from which the run resumes.
DAMAGED: dict[str, tuple[dict[str, Damage], int]] = {
    # the newest checkpoint, and of the run folder's other files some of which each checkpoint has a copy
    "checkpoint and best": (
        {
            "step_6/checksums.json": with_content(NESTED),
            "best/model.safetensors": flipped,
            "baseline.json": with_content(NESTED),
        },
        4,
    ),
    # the best model, of which one copy is enough; and all records
    "records": (
        {
            "step_2/model.safetensors": flipped,
            **{name: with_content(NESTED) for name in ("run.json", "config.yaml", "metrics.jsonl")},
        },
        6,
    ),
}


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_run_is_resumed_and_ends_as_the_whole_one(
    run: Path, whole: Path, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    """From the newest checkpoint that is whole; the damaged one, and why, is in a warning."""
    caplog.set_level("INFO")
    damages, step = DAMAGED[damaged]
    (run / ".best_old").mkdir()  # a kill while it was removed
    for name, damage in damages.items():
        damage(run / name)
    resume(run)
    assert f"resuming from {run}/step_{step}" in caplog.text
    warned = "".join(r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    for name in damages:
        if name.startswith("step_6/"):
            assert str(run / "step_6") in warned
            assert Path(name).name in warned
    assert_same_run(whole, run)
    assert (run / "config.yaml").read_text() == (whole / "config.yaml").read_text()
    for name, facts in (("baseline.json", None), ("run.json", ("experiment", "seed", "data", "started"))):
        after, before = (json.loads((folder / name).read_text()) for folder in (run, whole))
        assert all(after[fact] == before[fact] for fact in facts or before)
    assert damaged == "records" or not list(run.glob(".best*"))


def test_damaged_checkpoints_do_not_crowd_out_good_ones(
    run: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are removed once the run has resumed from one before them; other folders are left alone."""
    others = ("step_\u00b2", "step_", "step_-1", "step_6x", "step_\u0663")
    for name in others:
        (run / name).mkdir()
    for step in ("step_4", "step_6"):
        flipped(run / step / "model.safetensors")
    with monkeypatch.context() as patch:
        at_loss(patch, 2, die)
        with pytest.raises(SystemExit):
            resume(run)
    assert [path.name for path in checkpoints(run)] == ["step_2"]
    assert contains_run(run)
    resume(run)
    assert_same_run(whole, run)
    assert [verify(path) for path in checkpoints(run)] == [None] * 3
    assert all((run / name).is_dir() for name in others)
