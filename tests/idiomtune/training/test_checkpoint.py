"""Checkpoints as files: what is saved, what is damaged, which is the latest; without training."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from idiomtune.errors import UserError
from idiomtune.io.files import write_json
from idiomtune.io.run_files import OPTIMIZER, checkpoints, verify
from idiomtune.training.checkpoint import (
    TrainerState,
    finish_save,
    last_saved,
    latest_checkpoint,
    new_checkpoint,
    prune,
    write_best,
)
from tests.planted_runs import table_of

MODEL = "model.safetensors"


def save(run: Path, step: int, best_step: int | None = None, scores: Any = None) -> Path:
    run.mkdir(exist_ok=True)
    state = TrainerState(step=step, best_step=best_step)
    table = None if scores is None else table_of(scores)
    with new_checkpoint(run, state, table, {"config": {"seed": step}}) as folder:
        (folder / MODEL).write_text(f"model of {step}")
        (folder / OPTIMIZER).write_text(f"optimizer of {step}")
    return run / f"step_{step}"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    for name in (MODEL, OPTIMIZER, "state.json", "record.json", "checksums.json"):
        checkpoint = save(tmp_path, 2)
        assert verify(checkpoint) is None
        (checkpoint / name).write_text("{}")
        assert name in (verify(checkpoint) or "")
        (checkpoint / name).unlink()
        assert name in (verify(checkpoint) or "")


def test_the_latest_is_whole_and_so_is_its_best_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert str(tmp_path) not in last_saved(tmp_path)
    first, second, third = save(tmp_path, 2), save(tmp_path, 4, best_step=4), save(tmp_path, 10, best_step=4)
    write_best(tmp_path, second, "")
    assert latest_checkpoint(tmp_path) == third, "by number"
    assert str(third) in last_saved(tmp_path)
    (second / MODEL).write_text("damaged")
    assert latest_checkpoint(tmp_path) == third, "there is another copy in best/"
    assert not caplog.records
    (third / "state.json").write_text("damaged")
    (tmp_path / "best" / MODEL).write_text("damaged")
    save(tmp_path, 12, best_step=4)
    assert latest_checkpoint(tmp_path) == first
    for named in ("step_12 (", "step_4", "best/", "step_10 (state.json"):
        assert named in caplog.text


def test_after_a_save_the_best_model_is_in_its_folder(tmp_path: Path) -> None:
    """From its checkpoint, if that is whole; without scores there is none."""
    save(tmp_path, 2)
    finish_save(tmp_path, None, 1, "no card")
    assert not (tmp_path / "best").exists()
    finish_save(tmp_path, 2, 1, "first card")
    assert contents(tmp_path / "best") == {MODEL: "model of 2", "README.md": "first card"}
    (tmp_path / "best" / MODEL).write_text("damaged")
    finish_save(tmp_path, 2, 1, "third card")
    assert contents(tmp_path / "best")[MODEL] == "model of 2"
    (tmp_path / "step_2" / MODEL).write_text("damaged")
    finish_save(tmp_path, 2, 1, "fourth card")
    assert contents(tmp_path / "best") == {MODEL: "model of 2", "README.md": "third card"}


def test_a_full_disk_is_told_with_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 2**20 + 7))
    with (
        pytest.raises(UserError, match=rf"{tmp_path}/step_2: no space left.* 3 MiB.* 5 MiB"),
        new_checkpoint(tmp_path, TrainerState(step=2), None, {}, 2 * 2**20 + 1),
    ):
        raise OSError("no space left")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("keep", "left"), [(1, [2, 9]), (3, [2, 7, 8, 9]), (20, list(range(1, 10)))])
def test_the_newest_checkpoints_and_the_best_stay(tmp_path: Path, keep: int, left: list[int]) -> None:
    for step in range(1, 10):
        (tmp_path / f"step_{step}").mkdir()
        prune(tmp_path, keep, best_step=2 if step > 1 else 1)
    assert [int(path.name[5:]) for path in checkpoints(tmp_path)] == left


def test_the_best_as_of_each_checkpoint_stays(tmp_path: Path) -> None:
    """Without it a run could not be resumed from the one before a damaged newest."""
    for step, best, left in ((1, 1, [1]), (2, 1, [1, 2]), (3, 3, [1, 2, 3]), (4, 4, [3, 4])):
        write_json(tmp_path / f"step_{step}" / "state.json", {"step": step, "best_step": best})
        prune(tmp_path, 2, best)
        assert [int(path.name[5:]) for path in checkpoints(tmp_path)] == left
