"""Resume: a run that was cut short ends as if it had not been; and the folders are kept apart."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import save_file

from tests.tiny_runs import WholeRun, assert_same_run, at_loss, metrics, resume, train, weights
from train.errors import Interrupted, UserError
from train.runs.folder import RunFolder
from train.training.checkpoint import checkpoints


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def die() -> NoReturn:
    raise SystemExit("killed")


def test_resumed_after_its_patience_ran_out_a_run_trains_no_further(
    tmp_path: Path, options: list[str]
) -> None:
    """And `best/`, lost between saving and the end, is made again."""
    train(tmp_path / "run", [*options, "trainer.patience=1", "trainer.min_delta=2", "trainer.max_epochs=9"])
    before, best = metrics(tmp_path / "run"), weights(tmp_path / "run" / "best")
    shutil.rmtree(tmp_path / "run" / "best")
    resume(tmp_path / "run")
    assert metrics(tmp_path / "run") == before
    again = weights(tmp_path / "run" / "best")
    assert all(torch.equal(again[name], best[name]) for name in best)


def test_patience_that_runs_out_in_the_middle_of_an_epoch_ends_the_run_there(
    tmp_path: Path, options: list[str]
) -> None:
    """At once, as a run does that is resumed at that point: not only when the epoch is over."""
    run_options = [
        *options,
        "eval.every=1",
        "trainer.patience=1",
        "trainer.min_delta=2",
        "trainer.max_epochs=9",
    ]
    train(tmp_path / "run", run_options)
    before = metrics(tmp_path / "run")
    assert before[-1]["step"] == 2
    resume(tmp_path / "run")
    assert metrics(tmp_path / "run") == before


@pytest.mark.parametrize("at", ["mid-epoch", "epoch end"])
def test_interrupted_and_resumed_equals_uninterrupted(
    tmp_path: Path, options: list[str], whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """SIGTERM during a step: the step is finished and saved, and the resumed run ends bit for bit equal."""
    whole = whole_run(options)
    at_loss(monkeypatch, 2 if at == "mid-epoch" else 3, terminate)
    with pytest.raises(Interrupted, match=r"resume it with: python -m train resume="):
        train(tmp_path / "cut", options)
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["status"] == "interrupted"
    saved = checkpoints(tmp_path / "cut")[-1]
    assert saved.name == ("step_2" if at == "mid-epoch" else "step_3")
    assert (saved / "scores.json").exists() == (at == "epoch end")
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(whole, tmp_path / "cut")


def test_killed_between_checkpoints_repeats_the_lost_steps(
    tmp_path: Path, options: list[str], whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies in the second epoch without saving: what was logged after the checkpoint is dropped."""
    whole = whole_run(options)
    at_loss(monkeypatch, 6, die)
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", options)
    assert len([line for line in metrics(tmp_path / "cut") if "loss" in line]) == 5
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "los')  # cut short by the kill
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(whole, tmp_path / "cut")


def test_killed_before_the_first_checkpoint_starts_again(
    tmp_path: Path,
    options: list[str],
    whole_run: WholeRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    whole = whole_run(options)
    at_loss(monkeypatch, 3, die)
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", options)
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert "starting again from step 0" in caplog.text
    assert_same_run(whole, tmp_path / "cut")


def test_resumed_with_no_steps_left_scores_and_ends(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_loss(monkeypatch, 1, terminate)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", options)
    monkeypatch.undo()
    resume(tmp_path / "run", "trainer.max_steps=1")
    card = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert card["meta"]["checkpoint"] == "step_1"


def test_resume_refuses_other_data(tmp_path: Path, options: list[str], sample_root: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(sample_root, data)
    run_options = [o for o in options if o != "data=sample"] + [f"data.root={data}", "trainer.max_steps=1"]
    train(tmp_path / "run", run_options)
    moved = data.rename(tmp_path / "elsewhere")
    shutil.copytree(moved, data)
    path = data / "train" / "queries.json"
    path.write_text(path.read_text(encoding="utf-8").replace("aboard", "on"), encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(UserError, match=r"train/queries\.json changed"):
        resume(tmp_path / "run", "trainer.max_steps=2")


def test_a_run_that_failed_before_any_checkpoint_can_be_started_over(
    tmp_path: Path, options: list[str]
) -> None:
    typo = [o for o in options if o != "data=sample"] + [f"data.root={tmp_path / 'missing'}"]
    with pytest.raises(UserError, match="no such folder"):
        train(tmp_path / "run", typo)
    train(tmp_path / "run", [*options, "trainer.max_steps=1"])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_two_processes_do_not_share_a_folder(tmp_path: Path, options: list[str]) -> None:
    with (
        RunFolder(tmp_path / "run").locked(),
        pytest.raises(UserError, match="run: another process is working there"),
    ):
        train(tmp_path / "run", options)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path, options: list[str]) -> None:
    short = [*options, "trainer.max_steps=1"]
    train(tmp_path / "run", short)
    with pytest.raises(UserError, match="already holds a run: resume it with resume="):
        train(tmp_path / "run", short)


def test_full_disk_keeps_the_last_good_checkpoint(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = save_file
    calls = 0

    def full(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr("train.training.checkpoint.save_file", full)
    with pytest.raises(UserError, match=r"No space left on device.*step_3"):
        train(tmp_path / "run", options)
    assert [p.name for p in tmp_path.joinpath("run").glob("*step_*")] == ["step_3"]
    monkeypatch.undo()
    resume(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_a_run_is_not_made_shorter_than_it_is(tmp_path: Path, options: list[str]) -> None:
    """Its record would tell of another training than it had."""
    train(tmp_path / "run", options)
    before = (tmp_path / "run" / "config.yaml").read_text()
    for shorter in ("trainer.max_epochs=1", "trainer.max_steps=4"):
        with pytest.raises(UserError, match="already has 6 steps in 2 epochs"):
            resume(tmp_path / "run", shorter)
    assert (tmp_path / "run" / "config.yaml").read_text() == before
    resume(tmp_path / "run", "trainer.max_epochs=3")
