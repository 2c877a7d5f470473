"""Which run is resumed, from which checkpoint, with which options; without training."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from idiomtune.errors import UserError
from idiomtune.io.files import fingerprint, write_json
from idiomtune.io.records import remember_start
from idiomtune.training.checkpoint import TrainerState, new_checkpoint
from idiomtune.training.resume import (
    _check_length,
    _checkpoint_to_resume,
    check_same_data,
    find_run,
    may_change,
    newest_unfinished,
    saved_config,
    saved_record,
    start_or_resume,
)

THEN: dict[str, Any] = {
    "seed": 0,
    "run_dir": None,
    "resume": None,
    "tracking": {"backend": None},
    "trainer": {"max_epochs": 2, "learning_rate": 0.1, "invariants": True, "ema": None},
    "model": {"glossary": "here/g.csv", "path": "m"},
    "objective": {"name": "own", "size": 1},
}
RECORDED = {"config": THEN, "run": {"experiment": "x"}}


def save(run: Path, step: int, record: Any = None, best_step: int | None = None) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    with new_checkpoint(run, TrainerState(step=step, best_step=best_step), None, record or {}) as folder:
        (folder / "model.safetensors").write_text(f"model of {step}")
    return run / f"step_{step}"


def start(run: Path, status: str, written: int) -> Path:
    """A run whose record was written at some second."""
    write_json(run / "run.json", {"status": status, "experiment": "x"})
    os.utime(run / "run.json", (written, written))
    return run


def test_options_that_may_change() -> None:
    keys = ["device", "trainer.max_steps", "trainer.invariants", "tracking.backend", "hub.repo", "data.root"]
    assert [may_change(key) for key in keys] == [True] * len(keys)
    assert not any(map(may_change, ["seed", "trainer.batch_size", "model.path", "objective.tracking"]))


def test_which_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_run([]) is find_run(["resume=null"]) is find_run(["resume=auto"]) is None
    run = start(Path("checkpoints/mine/one"), "running", 100)
    assert find_run([f"resume={run}"]) == str(run)
    assert find_run(["resume=auto"]) is None, "of no experiment"
    assert find_run(["resume=auto", "+experiment=mine"]) == str(run)
    assert find_run(["resume=auto", "+experiment=mine", "run_dir=other"]) is None
    assert find_run(["resume=auto", f"run_dir='{run}'"]) == str(run)
    inside = save(run, 2)
    with pytest.raises(UserError, match=rf"no run .*; the run is {run.resolve()}"):
        find_run([f"resume={inside}"])
    with pytest.raises(UserError, match="in that folder"):
        find_run(["resume=nowhere"])
    (run / "run.json").unlink()
    assert find_run([f"resume={run}"]) == str(run), "its checkpoints are enough"


def test_the_newest_unfinished_run_by_what_it_wrote_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert newest_unfinished("mine") is None
    first, second = Path("checkpoints/mine/first"), Path("checkpoints/mine/second")
    os.utime(save(first, 2), (300, 300))
    start(first, "running", 100)
    start(second, "running", 200)
    start(Path("checkpoints/mine/done"), "finished", 400)
    start(Path("checkpoints/other/run"), "running", 500)
    assert newest_unfinished("mine") == first
    start(second, "running", 350)
    assert newest_unfinished("mine") == second
    assert newest_unfinished("*") == Path("checkpoints/other/run")


def test_the_newest_record_that_is_whole(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml"):
        saved_record(tmp_path)
    first, second = ({"config": {}, "run": {}, "metrics": [{"step": step}]} for step in (2, 4))
    old, new = save(tmp_path, 2, first), save(tmp_path, 4, second)
    assert saved_record(tmp_path) == second
    assert saved_record(tmp_path, old) == first
    (new / "record.json").write_text('{"config": {}, "run": {}}')
    assert saved_record(tmp_path) == first
    (old / "record.json").unlink()
    with pytest.raises(UserError, match=r"config\.yaml"):
        saved_record(tmp_path)


def changed(**sections: Any) -> dict[str, Any]:
    """The configuration of a new command line."""
    return {
        name: value | sections.get(name, {}) if isinstance(value, dict) else sections.get(name, value)
        for name, value in (THEN | {key: None for key in sections if key not in THEN}).items()
    }


ALLOWED: dict[str, dict[str, Any]] = {
    "trainer.max_epochs=5": {"trainer": {"max_epochs": 5}},
    "trainer.invariants=[-loss]": {"trainer": {"invariants": ["-loss"]}},
    "model.glossary=there/g.csv": {"model": {"glossary": "there/g.csv"}},
    "model.glossary=[there/g.csv]": {"model": {"glossary": ["there/g.csv"]}},
    "tracking.backend=files": {"tracking": {"backend": "files", "folder": "its default"}},
    "seed=0": {},
    "objective=own": {},
}


@pytest.mark.parametrize("override", ALLOWED)
def test_what_may_change_is_taken_over(tmp_path: Path, override: str) -> None:
    save(tmp_path, 2, RECORDED)
    now = changed(**ALLOWED[override]) | {"resume": "auto"}
    found = saved_config(tmp_path, now, "x", [override, "resume=auto", "+experiment=x", "hydra.verbose=true"])
    for section, options in ALLOWED[override].items():
        assert found[section] == THEN[section] | options
    assert (found["seed"], found["resume"]) == (0, str(tmp_path))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "seed=1": ({"seed": 1}, "seed: 1, but the run has 0"),
    "trainer.learning_rate=0.2": ({"trainer": {"learning_rate": 0.2}}, "rate: 0.2, but the run has 0.1"),
    "model.glossary=there/h.csv": ({"model": {"glossary": "there/h.csv"}}, "but the run has here/g.csv"),
    "debug=true": ({}, "debug=true: it changes what the run was started with"),
    "+protocol=folds": ({}, "protocol=folds: it changes what"),
    "run_dir=other": ({"run_dir": "other"}, "run_dir: other, but the run is in"),
    "objective=own": ({"objective": {"size": 2}}, "objective.size: 2, but the run has 1"),
    "trainer.newer=1": ({"trainer": {"newer": 1}}, "trainer.newer: 1, but the run has None"),
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_may_not_change_is_named(tmp_path: Path, override: str) -> None:
    save(tmp_path, 2, RECORDED)
    sections, named = REFUSED[override]
    with pytest.raises(UserError) as caught:
        saved_config(tmp_path, changed(**sections), "default", [override])
    assert named in str(caught.value)
    assert str(caught.value).count("but the run") + str(caught.value).count("it changes") == 1


def test_another_experiment_is_refused_and_the_same_folder_is_not(tmp_path: Path) -> None:
    save(tmp_path, 2, RECORDED)
    with pytest.raises(UserError, match="experiment: y, but the run has x"):
        saved_config(tmp_path, changed(), "y", ["+experiment=y"])
    folder = str(tmp_path)
    assert saved_config(tmp_path, changed(run_dir=folder), "default", [f"run_dir={folder}"])["seed"] == 0


def test_an_option_of_a_group_is_told_once(tmp_path: Path) -> None:
    """Of a group and one of its options, the option's own override tells."""
    save(tmp_path, 2, RECORDED)
    now = changed(objective={"size": 2})
    with pytest.raises(UserError) as caught:
        saved_config(tmp_path, now, "x", ["objective=own", "objective.size=2"])
    assert str(caught.value).count("objective.size: 2, but the run has 1") == 1


def test_the_runs_own_configuration_is_the_newest_if_it_is_whole(tmp_path: Path) -> None:
    """It has what was changed by a resumed run that saved no checkpoint."""
    save(tmp_path, 2, RECORDED)
    path = tmp_path / "config.yaml"
    write_json(path, changed(seed=7, data={}))
    write_json(tmp_path / "run.json", {"experiment": "x", "config_sum": fingerprint(path)})
    assert saved_config(tmp_path, changed(), "x", [])["seed"] == 7
    write_json(path, changed(seed=8, data={}))
    assert saved_config(tmp_path, changed(), "x", [])["seed"] == 0


def test_from_the_newest_whole_checkpoint_and_later_ones_go(tmp_path: Path) -> None:
    first, second = save(tmp_path, 1), save(tmp_path, 4)
    (second / "model.safetensors").write_text("damaged")
    assert _checkpoint_to_resume(tmp_path) == first
    assert not second.exists()
    (first / "model.safetensors").write_text("damaged")
    assert _checkpoint_to_resume(tmp_path) is None
    assert not first.exists()


def test_without_its_best_model_a_run_is_not_resumed(tmp_path: Path) -> None:
    best, newest = save(tmp_path, 2, best_step=2), save(tmp_path, 4, best_step=2)
    (best / "model.safetensors").write_text("damaged")
    with pytest.raises(UserError, match="has complete checkpoints, but the best model so far is damaged"):
        _checkpoint_to_resume(tmp_path)
    assert newest.is_dir()


@pytest.mark.parametrize(
    ("max_epochs", "max_steps", "fits", "is_told"),
    [
        (2, None, True, False),  # one epoch, and the second begun
        (1, None, False, False),
        (3, None, True, True),
        (2, 15, True, True),
        (2, 14, False, False),
    ],
)
def test_a_run_may_become_longer_but_not_shorter_than_it_is(
    max_epochs: int, max_steps: int | None, fits: bool, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    state = TrainerState(step=15, epoch=1, step_in_epoch=1)
    before = {"max_epochs": 2, "max_steps": None}
    trainer: Any = SimpleNamespace(max_epochs=max_epochs, max_steps=max_steps, schedule="linear")
    with caplog.at_level(logging.WARNING):
        if not fits:
            with pytest.raises(UserError, match="the run already has 15 steps in 2 epochs"):
                _check_length(before, trainer, state)
            return
        _check_length(before, trainer, state)
        assert ("the learning rate follows the linear schedule" in caplog.text) == is_told
        caplog.clear()
        trainer.schedule = "constant"
        _check_length(before, trainer, state)
        assert not caplog.records
    _check_length(before, trainer, TrainerState(step=15, epoch=2))  # no third one is begun


def test_data_may_be_moved_but_not_changed() -> None:
    check_same_data(
        {"here/val/a.json": "1", "here/b.csv": "2"}, {"there/val/a.json": "1", "there/b.csv": "2"}
    )
    with pytest.raises(UserError, match=r"started with: val/a\.json changed"):
        check_same_data({"here/val/a.json": "1"}, {"here/val/a.json": "9"})
    with pytest.raises(UserError, match=r"started with: here/b\.csv changed"):
        check_same_data({"here/val/a.json": "1"}, {"here/val/a.json": "1", "here/b.csv": "2"})


class Folder:
    """In place of a run's folder: what is asked of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[tuple[Any, ...]] = []

    def start(self, config: dict[str, Any], **facts: Any) -> None:
        self.calls.append(("start", config["resume"], facts["experiment"], facts["device"]))

    def resume(self, config: dict[str, Any], step: int, saved: dict[str, Any], **facts: Any) -> None:
        self.calls.append(("resume", config["resume"], step, saved["run"]["experiment"], facts["device"]))


def test_a_run_is_started_or_resumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new one; one without a checkpoint, again from its start; one with a checkpoint, from there."""
    folder: Any = Folder(tmp_path)
    trainer = SimpleNamespace(max_epochs=2, max_steps=None, schedule="linear")
    new: Any = SimpleNamespace(resume=None, seed=0, trainer=trainer)
    again: Any = SimpleNamespace(resume=str(tmp_path), seed=0, trainer=trainer)
    hint = "no +experiment= given"
    with caplog.at_level(logging.INFO):
        assert start_or_resume(new, {}, "mine", folder, device="cpu") is None
        assert hint not in caplog.text
        assert start_or_resume(new, {}, "default", folder, device="cpu") is None
        assert hint in caplog.text
        caplog.clear()
        start(tmp_path, "running", 100)
        assert start_or_resume(again, {"resume": "auto"}, "default", folder, device="cpu") is None
        assert "starting again from step 0" in caplog.text
        checkpoint = save(tmp_path, 2, RECORDED)
        assert start_or_resume(again, {"resume": "auto"}, "default", folder, device="cpu") == checkpoint
        assert hint not in caplog.text
    assert folder.calls == [
        *(("start", None, experiment, "cpu") for experiment in ("mine", "default", "x")),
        ("resume", None, 2, "x", "cpu"),
    ]


def test_a_run_in_a_folder_of_its_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `it.resume()` looks for it: below the current folder, wherever `run_dir=` put it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = start(tmp_path / "here" / "runs" / "mine", "interrupted", 100)
    save(run, 2)
    remember_start(run, [])
    remember_start(start(tmp_path / "elsewhere", "running", 900), [])
    assert newest_unfinished("*") == run
    assert newest_unfinished("x") is None
