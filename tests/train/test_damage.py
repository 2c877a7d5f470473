"""Damaged checkpoints: the run goes on from one that is whole, says so, and ends as it would have."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_runs import assert_same_run, at_loss, resume, train
from train.checkpoint import TrainerState, checkpoints, latest_checkpoint, prune, verify
from train.encoder import Encoder
from train.errors import UserError
from train.interrupts import Interrupted
from train.resume import holds_a_run


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """In place, as a disk does it: what is hard-linked to the file is damaged with it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def emptied(path: Path) -> None:
    path.write_text("{}")


def copied(run: Path, folder: Path) -> Path:
    """A run folder with its hard links."""
    shutil.copytree(run, folder)
    for model in run.glob("step_*/model.safetensors"):
        if model.samefile(run / "best" / model.name):
            (folder / "best" / model.name).unlink()
            os.link(folder / model.relative_to(run), folder / "best" / model.name)
    return folder


def first_is_best(state: TrainerState, _scores: Any, _trainer: Any) -> bool:
    """Instead of the scores' word, which other numerics may turn."""
    improved = state.best_step is None
    if improved:
        state.best_score, state.best_step = 1.0, state.step
    return improved


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> Path:
    """Steps 2, 4 and 6 were scored, and step 2 is the best."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.loop.update_best", first_is_best)
        train(folder, [*options, "eval.every=2"])
    assert [path.name for path in checkpoints(folder)] == ["step_2", "step_4", "step_6"]
    return folder


@pytest.fixture(autouse=True)
def _first_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.loop.update_best", first_is_best)


@pytest.mark.parametrize(
    ("damage", "name", "says"),
    [
        (truncated, "model.safetensors", "model.safetensors is damaged"),
        (flipped, "optimizer.safetensors", "optimizer.safetensors is damaged"),
        (Path.unlink, "tokenizer.json", "tokenizer.json is missing"),
        (Path.unlink, "checksums.json", "checksums.json is missing"),
        (truncated, "checksums.json", "checksums.json is damaged"),
        (emptied, "checksums.json", "checksums.json is damaged"),
    ],
)
def test_the_one_before_a_damaged_last_checkpoint_serves(
    tmp_path: Path,
    whole: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    name: str,
    says: str,
) -> None:
    folder = copied(whole, tmp_path / "run")
    damage(folder / "step_6" / name)
    caplog.set_level("INFO")
    resume(folder)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"cannot go on from {folder}/step_6 ({says}): looking at the checkpoint before it",
    ]
    assert f"going on from {folder}/step_4" in caplog.text
    assert_same_run(whole, folder)


def test_the_best_model_outlives_damage_beside_it(tmp_path: Path, whole: Path) -> None:
    """Of the best checkpoint only the model is needed, and `best/` holds that too."""
    for damage, name in ((flipped, "optimizer.safetensors"), (Path.unlink, "model.safetensors")):
        folder = copied(whole, tmp_path / name)
        damage(folder / "step_2" / name)
        assert latest_checkpoint(folder) == folder / "step_6"
        resume(folder)
        assert_same_run(whole, folder)


def test_a_damaged_best_folder_is_made_again(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "best" / "model.safetensors").unlink()
    (folder / "best" / "model.safetensors").write_bytes(b"not weights")
    resume(folder)
    assert_same_run(whole, folder)


def test_nothing_whole_is_thrown_away_where_the_best_model_is_lost(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is a worse one reported as the best: the user decides; then it is trained again."""
    folder = copied(whole, tmp_path / "run")
    flipped(folder / "step_2" / "model.safetensors")
    with pytest.raises(UserError, match="the best model so far is damaged both in its step_"):
        resume(folder)
    assert "step_6 (the best model, of step_2, is lost there and in best/)" in caplog.text
    assert verify(folder / "step_6") is None
    for path in folder.glob("step_*"):
        shutil.rmtree(path)
    resume(folder)
    assert "starting again from step 0" in caplog.text
    assert_same_run(whole, folder)


def test_a_damaged_record_of_the_run_is_named(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "run.json").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        resume(folder)
    assert (folder / "step_6").is_dir()


@pytest.mark.parametrize("content", ["", "a: [", "text"])
def test_a_damaged_configuration_is_named(tmp_path: Path, whole: Path, content: str) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "config.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        resume(folder)


def test_a_damaged_baseline_is_scored_again(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "baseline.json").write_text("{", encoding="utf-8")
    resume(folder)
    assert_same_run(whole, folder)


def test_damaged_checkpoints_do_not_crowd_out_good_ones(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count for nothing once the run went on from one before them, and are gone."""
    folder = copied(whole, tmp_path / "run")
    for step in ("step_4", "step_6"):
        flipped(folder / step / "model.safetensors")
    at_loss(monkeypatch, 2, lambda: (_ for _ in ()).throw(UserError("stopped")))
    with pytest.raises(UserError, match="stopped"):
        resume(folder)
    assert [path.name for path in checkpoints(folder)] == ["step_2"]
    assert holds_a_run(folder)
    monkeypatch.undo()
    monkeypatch.setattr("train.loop.update_best", first_is_best)
    resume(folder)
    assert_same_run(whole, folder)
    assert all(verify(path) is None for path in checkpoints(folder))


def test_a_checkpoint_of_an_interrupt_is_one_like_any_other(
    tmp_path: Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has no scores; and the mean loss logged after it is that of all steps since the last one's."""

    def logged() -> list[str]:
        lines = [record.getMessage().split(";")[0] for record in caplog.records]
        caplog.clear()
        return [line for line in lines if line.startswith("epoch ")]

    caplog.set_level("INFO")
    train(tmp_path / "whole", [*options, "trainer.max_epochs=1"])
    expected = logged()
    assert len(expected) == 1
    at_loss(monkeypatch, 2, lambda: os.kill(os.getpid(), 15))
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", [*options, "trainer.max_epochs=1"])
    saved = tmp_path / "cut" / "step_2"
    assert verify(saved) is None
    assert not (saved / "scores.json").exists()
    assert Encoder.from_pretrained(saved, device="cpu").encode(["He broke the ice."]).shape == (1, 32)
    resume(tmp_path / "cut")
    assert logged() == expected
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("keep", "kept"), [(1, [2, 9]), (3, [2, 7, 8, 9]), (20, list(range(1, 10)))])
def test_the_newest_checkpoints_and_the_best_are_kept(tmp_path: Path, keep: int, kept: list[int]) -> None:
    for step in range(1, 10):
        (tmp_path / f"step_{step}").mkdir()
        prune(tmp_path, keep, best_step=2 if step > 1 else 1)
    assert [int(path.name[5:]) for path in checkpoints(tmp_path)] == kept
