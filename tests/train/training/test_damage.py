"""Damaged checkpoints: the run goes on from one that is whole, says so, and ends as it would have."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny_runs import assert_same_run, at_loss, resume, train
from train.encoder.encoder import Encoder
from train.errors import Interrupted, UserError
from train.io.files import fingerprint
from train.runs.resume import holds_a_run
from train.training.checkpoint import TrainerState, checkpoints, latest_checkpoint, prune, verify


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


def emptied(path: Path) -> None:
    path.write_text("{}")


def copied(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
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
        patch.setattr("train.training.scoring.update_best", first_is_best)
        train(folder, [*options, "eval.every=2"])
    assert [path.name for path in checkpoints(folder)] == ["step_2", "step_4", "step_6"]
    return folder


@pytest.fixture(autouse=True)
def _first_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.training.scoring.update_best", first_is_best)


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
        f"cannot resume from {folder}/step_6 ({says}): trying the checkpoint before it",
    ]
    assert f"resuming from {folder}/step_4" in caplog.text
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
    (folder / ".best_old").mkdir()  # a kill while it was removed
    (folder / "best" / "model.safetensors").unlink()
    (folder / "best" / "model.safetensors").write_bytes(b"not weights")
    resume(folder)
    assert_same_run(whole, folder)
    (folder / ".best_old").mkdir()
    resume(folder)
    assert not list(folder.glob(".best*"))


def test_nothing_whole_is_thrown_away_where_the_best_model_is_lost(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is a worse one reported as the best: the user decides; then it is trained again."""
    folder = copied(whole, tmp_path / "run")
    flipped(folder / "step_2" / "model.safetensors")
    flipped(folder / "best" / "model.safetensors")
    with pytest.raises(UserError, match="the best model so far is damaged both in its step_"):
        resume(folder)
    assert "step_6 (the best model, of step_2, is lost there and in best/)" in caplog.text
    assert verify(folder / "step_6") is None
    for path in folder.glob("step_*"):
        shutil.rmtree(path)
    resume(folder)
    assert "starting again from step 0" in caplog.text
    assert_same_run(whole, folder)


def test_one_flip_spoils_one_folder(tmp_path: Path, whole: Path) -> None:
    """The best checkpoint's files and those of `best/` are no links to the same blocks."""
    folder = copied(whole, tmp_path / "run")
    for path in (whole / "best").rglob("*"):
        twin = whole / "step_2" / path.relative_to(whole / "best")
        assert path.is_dir() or not twin.exists() or not path.samefile(twin), path
    flipped(folder / "step_2" / "model.safetensors")
    resume(folder)
    assert_same_run(whole, folder)


@pytest.mark.parametrize("content", ["", "{}", "null", "[]", '{"status": 3}', "[" * 10_000])
def test_a_damaged_record_is_set_aside_and_made_again(
    tmp_path: Path, whole: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what the checkpoint keeps of it."""
    folder = copied(whole, tmp_path / "run")
    before = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(content, encoding="utf-8")
    resume(folder)
    assert f"{folder / 'run.json'} is damaged" in caplog.text
    assert (folder / "run.json.damaged").read_text(encoding="utf-8") == content
    after = json.loads((folder / "run.json").read_text())
    for name in ("experiment", "seed", "data", "started"):
        assert after[name] == before[name]
    assert_same_run(whole, folder)


@pytest.mark.parametrize("content", ["", "a: [", "text", "[]", "trainer: 3"])
def test_a_damaged_configuration_is_set_aside_and_made_again(
    tmp_path: Path, whole: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(whole, tmp_path / "run")
    before = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(content, encoding="utf-8")
    resume(folder)
    assert "config.yaml is damaged" in caplog.text
    assert (folder / "config.yaml").read_text() == before
    assert_same_run(whole, folder)


def test_an_option_that_changed_on_the_disk_is_what_it_was(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One flipped bit in a number would make it another run."""
    folder = copied(whole, tmp_path / "run")
    shutil.rmtree(folder / "step_6")
    text = (folder / "config.yaml").read_text()
    changed = yaml.safe_load(text)
    changed["objective"]["loss"]["temperature"] *= 2
    (folder / "config.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"seed": 3, "data": {"x": "y"}}))
    resume(folder)
    assert "temperature" in caplog.text
    assert (folder / "config.yaml").read_text() == text
    assert json.loads((folder / "run.json").read_text())["data"] == record["data"]
    assert_same_run(whole, folder)


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_a_record_that_nothing_keeps_is_named(tmp_path: Path, whole: Path, name: str) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / name).write_text("", encoding="utf-8")
    for record in folder.glob("step_*/record.json"):
        record.unlink()
    with pytest.raises(UserError, match=f"{name} is damaged"):
        resume(folder)
    assert (folder / "step_6").is_dir()


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"a": "b"}', '{"a": {}}', "[" * 10_000])
def test_a_damaged_baseline_is_scored_again(tmp_path: Path, whole: Path, content: str) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "baseline.json").write_text(content, encoding="utf-8")
    resume(folder)
    assert_same_run(whole, folder)


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"loss": 1}', '{"step": "x"}', "\x00", "[" * 10_000])
def test_bad_lines_of_the_metrics_are_left_out_and_kept_aside(
    tmp_path: Path, whole: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(whole, tmp_path / "run")
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([lines[0], line, *lines[1:]]), encoding="utf-8")
    resume(folder)
    assert f"{path}: line 2 is damaged" in caplog.text
    assert (folder / "metrics.jsonl.damaged").is_file()
    assert_same_run(whole, folder)


def test_shortened_metrics_are_noticed(tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = copied(whole, tmp_path / "run")
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:2]), encoding="utf-8")
    resume(folder)
    assert f"has 2 of the {len(lines)} lines" in caplog.text


@pytest.mark.parametrize(
    ("change", "says"),
    [({"surplus": 1}, "surplus"), ({"step": "six"}, "step"), ({"num_empty": []}, "num_empty")],
)
def test_a_state_of_another_version_is_passed_over(
    tmp_path: Path, whole: Path, change: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(whole, tmp_path / "run")
    checkpoint = folder / "step_6"
    state = json.loads((checkpoint / "state.json").read_text()) | change
    (checkpoint / "state.json").write_text(json.dumps(state), encoding="utf-8")
    sums = json.loads((checkpoint / "checksums.json").read_text())
    sums["state.json"] = fingerprint(checkpoint / "state.json")
    (checkpoint / "checksums.json").write_text(json.dumps(sums), encoding="utf-8")
    assert latest_checkpoint(folder) == folder / "step_4"
    assert says in caplog.text


def test_other_folders_are_no_checkpoints(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    for name in ("step_\u00b2", "step_", "step_-1", "step_6x", "step_\u0663"):
        (folder / name).mkdir()
    assert latest_checkpoint(folder) == folder / "step_6"
    resume(folder)


@pytest.mark.parametrize("damage", [Path.unlink, emptied])
def test_the_sums_of_the_best_model_are_kept_twice(
    tmp_path: Path, whole: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(whole, tmp_path / "run")
    damage(folder / "step_2" / "checksums.json")
    assert latest_checkpoint(folder) == folder / "step_6"
    flipped(folder / "best" / "model.safetensors")
    resume(folder)
    assert "cannot resume" not in caplog.text
    assert_same_run(whole, folder)


def test_deep_checksums_are_damaged_ones(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "step_6" / "checksums.json").write_text("[" * 100_000, encoding="utf-8")
    assert verify(folder / "step_6") == "checksums.json is damaged"
    assert latest_checkpoint(folder) == folder / "step_4"


def test_a_save_cut_short_between_two_names_is_recovered(tmp_path: Path, whole: Path) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "step_6").rename(folder / ".step_6_old")
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
    monkeypatch.setattr("train.training.scoring.update_best", first_is_best)
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


def test_the_best_as_of_each_kept_checkpoint_is_kept(tmp_path: Path) -> None:
    """Else the one before a damaged newest could not be gone on from."""
    for step, best in ((1, 1), (2, 1), (3, 3), (4, 4)):
        (tmp_path / f"step_{step}").mkdir()
        state = asdict(TrainerState(step=step, best_step=best))
        (tmp_path / f"step_{step}" / "state.json").write_text(json.dumps(state), encoding="utf-8")
        prune(tmp_path, 2, best)
        if step == 3:
            assert [path.name for path in checkpoints(tmp_path)] == ["step_1", "step_2", "step_3"]
    assert [path.name for path in checkpoints(tmp_path)] == ["step_3", "step_4"]
