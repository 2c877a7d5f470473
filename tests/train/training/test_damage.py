"""Damaged files: the run resumes from a checkpoint that is whole, reports it, and ends as it would have."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_runs import assert_same_run, at_loss, die, resume, train
from train.encoder.encoder import Encoder
from train.errors import UserError
from train.io.files import fingerprint, write_json
from train.training.checkpoint import TrainerState, checkpoints, latest_checkpoint, prune, verify
from train.training.run_folder import holds_a_run

Damage = Callable[[Path], object]


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """In place, as a disk does it: a hard link to the file would be damaged with it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def with_content(content: str) -> Damage:
    return lambda path: path.write_text(content, encoding="utf-8")


def resealed(change: dict[str, Any]) -> Damage:
    """A field of a JSON file is another, and its sum with it, as another version would write it."""

    def damage(path: Path) -> None:
        write_json(path, json.loads(path.read_text()) | change)
        sums = path.parent / "checksums.json"
        write_json(sums, json.loads(sums.read_text()) | {path.name: fingerprint(path)})

    return damage


def first_is_best(state: TrainerState, _scores: Any, _trainer: Any) -> bool:
    """In place of the scores, which may rank otherwise on another processor."""
    improved = state.best_step is None
    if improved:
        state.best_score, state.best_step = 1.0, state.step
    return improved


@pytest.fixture(autouse=True)
def _first_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.training.loop.update_best", first_is_best)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> Path:
    """Steps 2, 4 and 6 were scored, and step 2 is the best."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.training.loop.update_best", first_is_best)
        train(folder, [*options, "eval.every=2"])
    assert [path.name for path in checkpoints(folder)] == ["step_2", "step_4", "step_6"]
    for path in (folder / "best").rglob("*"):  # no links to the same blocks
        twin = folder / "step_2" / path.relative_to(folder / "best")
        assert path.is_dir() or not twin.exists() or not path.samefile(twin), path
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


# ------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize(
    ("damage", "name", "problem"),
    [
        (truncated, "model.safetensors", "model.safetensors is damaged"),
        (flipped, "optimizer.safetensors", "optimizer.safetensors is damaged"),
        (Path.unlink, "tokenizer.json", "tokenizer.json is missing"),
        (Path.unlink, "checksums.json", "checksums.json"),
        (truncated, "checksums.json", "checksums.json"),
        (with_content("[" * 100_000), "checksums.json", "checksums.json"),
        (resealed({"surplus": 1}), "state.json", "surplus"),
        (resealed({"step": "six"}), "state.json", "step"),
    ],
)
def test_the_one_before_a_damaged_last_checkpoint_serves(
    run: Path, whole: Path, caplog: pytest.LogCaptureFixture, damage: Damage, name: str, problem: str
) -> None:
    damage(run / "step_6" / name)
    caplog.set_level("INFO")
    resume(run)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert str(run / "step_6") in warning
    assert problem in warning
    assert f"resuming from {run}/step_4" in caplog.text
    assert_same_run(whole, run)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (flipped, "step_2/optimizer.safetensors"),  # of the best checkpoint only the model is needed
        (flipped, "step_2/model.safetensors"),  # and `best/` has that too
        (Path.unlink, "best/model.safetensors"),
        (flipped, "best/model.safetensors"),
    ],
)
def test_one_copy_of_the_best_model_is_enough(run: Path, whole: Path, damage: Damage, name: str) -> None:
    (run / ".best_old").mkdir()  # a kill while it was removed
    damage(run / name)
    assert latest_checkpoint(run) == run / "step_6"
    resume(run)
    assert_same_run(whole, run)
    assert name == "step_2/model.safetensors" or not list(run.glob(".best*"))


def test_nothing_is_thrown_away_if_the_best_model_is_lost(
    run: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is a worse one reported as the best: the user decides; then it is trained again."""
    for name in ("step_2", "best"):
        flipped(run / name / "model.safetensors")
    with pytest.raises(UserError, match="the best model so far is damaged both in its step_"):
        resume(run)
    assert "step_6 (the best model, of step_2, is damaged there and in best/)" in caplog.text
    assert verify(run / "step_6") is None
    for path in run.glob("step_*"):
        shutil.rmtree(path)
    resume(run)
    assert "starting again from step 0" in caplog.text
    assert_same_run(whole, run)


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
    assert holds_a_run(run)
    resume(run)
    assert_same_run(whole, run)
    assert [verify(path) for path in checkpoints(run)] == [None] * 3
    assert all((run / name).is_dir() for name in others)


def test_a_save_cut_short_between_two_names_is_recovered(run: Path, whole: Path) -> None:
    (run / "step_6").rename(run / ".step_6_old")
    resume(run)
    assert_same_run(whole, run)


def test_any_checkpoint_is_a_model(whole: Path) -> None:
    assert Encoder.from_pretrained(whole / "step_4", device="cpu").encode(["It rained."]).shape == (1, 32)


@pytest.mark.parametrize(("keep", "kept"), [(1, [2, 9]), (3, [2, 7, 8, 9]), (20, list(range(1, 10)))])
def test_the_newest_checkpoints_and_the_best_are_kept(tmp_path: Path, keep: int, kept: list[int]) -> None:
    for step in range(1, 10):
        (tmp_path / f"step_{step}").mkdir()
        prune(tmp_path, keep, best_step=2 if step > 1 else 1)
    assert [int(path.name[5:]) for path in checkpoints(tmp_path)] == kept


def test_the_best_as_of_each_kept_checkpoint_is_kept(tmp_path: Path) -> None:
    """Without it a run could not be resumed from the one before a damaged newest."""
    for step, best, left in ((1, 1, [1]), (2, 1, [1, 2]), (3, 3, [1, 2, 3]), (4, 4, [3, 4])):
        write_json(tmp_path / f"step_{step}" / "state.json", {"step": step, "best_step": best})
        prune(tmp_path, 2, best)
        assert [int(path.name[5:]) for path in checkpoints(tmp_path)] == left


# ------------------------------------------------------------------ the run folder's other files


@pytest.mark.parametrize("content", [None, "[]", "[" * 10_000])
@pytest.mark.parametrize("name", ["run.json", "config.yaml", "metrics.jsonl", "baseline.json"])
def test_the_run_folders_other_files_are_made_again(
    run: Path, whole: Path, name: str, content: str | None
) -> None:
    """From the checkpoint; the untrained model's scores are computed again."""
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content, encoding="utf-8")
    resume(run)
    assert_same_run(whole, run)
    assert (run / "config.yaml").read_text() == (whole / "config.yaml").read_text()
    assert json.loads((run / "baseline.json").read_text()) == json.loads(
        (whole / "baseline.json").read_text()
    )
    before, after = (json.loads((folder / "run.json").read_text()) for folder in (whole, run))
    for fact in ("experiment", "seed", "data", "started", "trained_on"):
        assert after[fact] == before[fact]


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_a_damaged_file_without_a_copy_is_named(run: Path, name: str) -> None:
    (run / name).write_text("", encoding="utf-8")
    for record in run.glob("step_*/record.json"):
        record.unlink()
    with pytest.raises(UserError, match=f"{name} is damaged"):
        resume(run)
    assert (run / "step_6").is_dir()


def test_checkpoints_of_earlier_versions_resume(run: Path, whole: Path) -> None:
    """The lines of `metrics.jsonl` were in the run folder alone."""
    for path in checkpoints(run):
        record = json.loads((path / "record.json").read_text())
        del record["metrics"]
        record.pop("best_sums", None)
        write_json(path / "record.json", record)
        resealed({})(path / "record.json")
    shutil.rmtree(run / "step_6")
    resume(run)
    assert_same_run(whole, run)
