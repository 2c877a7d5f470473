"""Sweeps that are started again, and command lines that Hydra refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound
from tests.programs import run
from train.cli.arguments import is_unnamed_sweep

SWEEP = ["-m", *OWN, "hydra.sweep.dir=sweep", "trainer.max_steps=2", "trainer.batch_size=12", "eval.every=1"]
SEARCH = [
    *("-m", "hydra/sweeper=optuna", *OWN, "hydra.sweep.dir=search", "trainer.max_steps=1"),
    *("hydra.sweeper.n_trials=1", "trainer.learning_rate=interval(1e-5,1e-4)"),
]


@pytest.mark.slow
def test_a_plain_sweep_continues(tmp_path: Path, tiny_path: Path) -> None:
    """Finished jobs are skipped, one that was cut off is resumed, and one of another command is refused."""
    files = {"train.csv": PAIRS}
    first = run_sound([*SWEEP, "seed=1,2"], tmp_path, tiny_path, files, "train")
    assert first.returncode == 0, first.stderr
    finished, cut = tmp_path / "sweep" / "0", tmp_path / "sweep" / "1"
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    weights = (cut / "best" / "model.safetensors").read_bytes()
    record = json.loads((cut / "run.json").read_text())
    for name in ("best", "step_2"):
        shutil.rmtree(cut / name)
    (cut / "scores.json").unlink()
    (cut / "run.json").write_text(json.dumps(record | {"status": "running"}))  # as a killed run leaves it
    again = run_sound([*SWEEP, "seed=1,2"], tmp_path, tiny_path, program="train")
    assert again.returncode == 0, again.stderr
    assert "0: finished by an earlier start" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()} == before
    assert (cut / "best" / "model.safetensors").read_bytes() == weights
    assert json.loads((cut / "run.json").read_text())["resumed"][0]["step"] == 1
    other = run_sound([*SWEEP, "seed=3,4"], tmp_path, tiny_path, program="train")
    assert other.returncode == 2
    assert "already holds a run" in other.stderr


@pytest.mark.slow
def test_an_empty_study_does_not_overwrite_a_search(tmp_path: Path, tiny_path: Path) -> None:
    first = run_sound(SEARCH, tmp_path, tiny_path, {"train.csv": PAIRS}, "train")
    assert first.returncode == 0, first.stderr
    report = (tmp_path / "search" / "search.json").read_bytes()
    (tmp_path / "search" / "study.db").write_bytes(b"")
    run_mistake(
        Mistake("empty study", SEARCH, ["study.db", "empty", "search.json"], program="train"),
        *(tmp_path, tiny_path),
    )
    assert (tmp_path / "search" / "search.json").read_bytes() == report


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["+experiment=idiolink_ft", "run_dir=folder", "trainer.nonsense=1"],
        ["+experiment=idiolink_ft", "run_dir=folder", "hydra.nonsense=1"],
        ["-m", "+experiment=idiolink_ft", "hydra.sweep.dir=folder", "seed=a,b"],
        ["-m", "+experiment=idiolink_ft", "seed=a,b"],
    ],
)
def test_what_hydra_refuses_leaves_no_folder(options: list[str], tmp_path: Path) -> None:
    assert run("train", *options, cwd=tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_search_by_name_has_its_studys_folder() -> None:
    """So that the same command resumes it."""
    assert is_unnamed_sweep(["-m", "+experiment=idiolink_ft", "seed=1,2"])
    assert not is_unnamed_sweep(["-m", "+sweep=idiolink_ft", "+experiment=idiolink_ft"])
