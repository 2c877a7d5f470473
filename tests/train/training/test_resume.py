"""Resume: a run that was cut short ends as if it had not been; what is not the same run is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.own_data import mixture_options, write
from tests.tiny_models import tiny_sentence_transformer
from tests.tiny_runs import (
    KEY,
    WholeRun,
    assert_resumed_equals_whole,
    assert_same_run,
    at_loss,
    composed,
    die,
    metrics,
    resume,
    terminate,
    train,
    weights,
)
from train.benchmarks.suite import Suite
from train.errors import Interrupted, UserError
from train.training.resume import saved_config

TOKENS = ["model.idiom_tokens=train", "retain.distillation=0"]
DISTILLATION = ["retain.distillation=0.5"]
SHORT = ["trainer.max_epochs=2", "trainer.learning_rate=1e-3"]

# ------------------------------------------------------------------ resumed equals uninterrupted

# Fixture with the options of a run → what is added to them, for each kind of state that a run has.
RESUMED: dict[str, dict[str, list[str]]] = {
    "options": {
        "plain": [],
        "scored within epochs": ["eval.every=2", "trainer.keep_checkpoints=1"],
        "micro-steps": ["trainer.accumulation=2", "trainer.gradient_caching=true"],
        "leading dimensions": ["trainer.matryoshka=[16,8]", "trainer.activation_checkpointing=true"],
        "remedies and tokens": [*DISTILLATION, "retain.interpolation=0.7", "model.idiom_tokens=train"],
        "adapters": [*DISTILLATION, "retain.lora.rank=4", "retain.lora.dropout=0.1"],
        "glossary": [
            *("model.glossary=sample", "model.glossary_dropout=0.5", "model.glossary_gate=true"),
        ],
    },
    "taught_options": {
        "teacher": ["retain.teacher_texts=plain"],
        "teacher of all texts": ["retain.teacher_texts=all"],
    },
    "triplet_options": {
        "triplets": [],
        "tokens with their own rate": [*TOKENS, "trainer.idiom_tokens_learning_rate=1e-2"],
        "tokens alone": [*TOKENS, "trainer.only_idiom_tokens=true"],
        "groups in the file's order": [
            *(*TOKENS, "model.idiom_tokens_start=random", "trainer.no_decay=[bias,norm]"),
            *("objective.order=file", "objective.whole_groups=false", "objective.groups_per_expression=null"),
        ],
    },
    "joint_options": {"joint": []},
    "mixture_of_three": {"mixture": []},
    "own_pairs": {"own data": []},
    "experts_options": {
        "experts": ["eval.every=epoch", "objective.sense_features=sentence"],
        "frozen encoder": ["eval.every=epoch", "trainer.freeze_encoder=true"],
    },
}


@pytest.fixture
def taught_options(options: list[str], tmp_path: Path, minilm_path: str) -> list[str]:
    """By a teacher of another width."""
    teacher = tiny_sentence_transformer(tmp_path, minilm_path, size=48)
    return [*options, *DISTILLATION, f"retain.teacher='{teacher}'"]


@pytest.fixture
def mixture_of_three(tmp_path: Path, tiny_path: Path) -> list[str]:
    model = ["device=cpu", "model=pretrained", f"model.path={tiny_path}"]
    return [*mixture_options(tmp_path), "data=sample", *model, "trainer.batch_size=48", *SHORT]


@pytest.fixture
def own_pairs(tmp_path: Path, tiny_path: Path) -> list[str]:
    rows = "".join(f"what is {i}?,it is {i} and {i + 1}\n" for i in range(30))
    data = write(tmp_path / "pairs.csv", f"anchor,positive\n{rows}")
    model = ["device=cpu", "model=pretrained", f"model.path={tiny_path}"]
    return ["+experiment=own", f"data.train={data}", *model, "trainer.batch_size=10", *SHORT]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "added"),
    [pytest.param(base, added, id=name) for base, kinds in RESUMED.items() for name, added in kinds.items()],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, request: pytest.FixtureRequest, base: str, added: list[str]
) -> None:
    options = [*request.getfixturevalue(base), *added]
    train(tmp_path / "whole", options)
    assert_resumed_equals_whole(tmp_path / "whole", tmp_path / "cut", options)


@pytest.mark.parametrize(
    ("at", "happens", "saved", "said"),
    [
        (2, terminate, "step_2", "resuming from"),  # in mid-epoch: a checkpoint without scores
        (3, terminate, "step_3", "resuming from"),  # in the last step of an epoch
        (6, die, "step_3", "resuming from"),  # what was logged since is dropped
        (3, die, None, "starting again from step 0"),
    ],
)
def test_wherever_it_was_cut(
    tmp_path: Path,
    options: list[str],
    whole_run: WholeRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at: int,
    happens: Callable[[], None],
    saved: str | None,
    said: str,
) -> None:
    """And the mean loss that is logged at an evaluation is that of all steps since the last one."""

    def logged() -> list[str]:
        lines = [record.getMessage().split(";")[0] for record in caplog.records]
        return [line for line in lines if line.startswith("epoch ")]

    caplog.set_level("INFO")
    cut = tmp_path / "cut"
    at_loss(monkeypatch, at, happens)
    with pytest.raises((Interrupted, SystemExit)) as ended:
        train(cut, options)
    monkeypatch.undo()
    if happens is terminate:
        assert f"resume it with: python -m train resume={cut}" in str(ended.value)
        assert json.loads((cut / "run.json").read_text())["status"] == "interrupted"
        assert (cut / str(saved) / "scores.json").exists() == (at == 3)
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "los')  # cut short by the kill
    assert [path.name for path in cut.glob("step_*")] == ([saved] if saved else [])
    resume(cut)
    assert said in caplog.text
    assert_same_run(whole_run(options), cut)
    expected = logged()[-2:]
    assert all(line.startswith(f"epoch {n}, step {3 * n}: ") for n, line in enumerate(expected, 1))
    losses = [line["loss"] for line in metrics(cut) if "loss" in line]
    for line, mean in zip(expected, (sum(losses[:3]) / 3, sum(losses[3:]) / 3), strict=True):
        assert f"loss {mean:.4f}" in line


def test_sigterm_while_the_untrained_model_is_scored(
    tmp_path: Path, options: list[str], whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Suite.run

    def terminated(self: Suite, *arguments: object, **named: object) -> object:
        terminate()
        terminate()  # a launcher forwards what every process got
        return real(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Suite, "run", terminated)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="resume it with: python -m train resume="):
        train(tmp_path / "cut", options)
    assert signal.getsignal(signal.SIGTERM) is before
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["status"] == "interrupted"
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(whole_run(options), tmp_path / "cut")


# ------------------------------------------------------------------ runs with no steps left


@pytest.mark.parametrize("every", ["epoch", "1"])
def test_after_its_patience_ran_out_a_run_trains_no_further(
    tmp_path: Path, options: list[str], every: str
) -> None:
    """Whole or resumed, also in the middle of an epoch; `best/`, if lost, is made again."""
    patient = ["trainer.patience=1", "trainer.min_delta=2", "trainer.max_epochs=9", f"eval.every={every}"]
    train(tmp_path, [*options, *patient])
    before, best = metrics(tmp_path), weights(tmp_path / "best")
    assert before[-1]["step"] == (2 if every == "1" else 6)
    shutil.rmtree(tmp_path / "best")
    resume(tmp_path)
    assert metrics(tmp_path) == before
    again = weights(tmp_path / "best")
    assert all(torch.equal(again[name], best[name]) for name in best)


def test_resumed_with_no_steps_left_it_is_scored(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_loss(monkeypatch, 1, terminate)
    with pytest.raises(Interrupted):
        train(tmp_path, options)
    monkeypatch.undo()
    resume(tmp_path, "trainer.max_steps=1")
    card = json.loads((tmp_path / "scores.json").read_text())
    assert card["meta"]["checkpoint"] == "step_1"
    assert KEY in card["scores"]


def test_a_new_length_is_reported_and_not_below_the_present_one(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The schedule of the learning rate is another, in either direction."""
    train(tmp_path, [*options, "trainer.max_epochs=9", "trainer.patience=1", "trainer.min_delta=2"])
    before = (tmp_path / "config.yaml").read_text()
    for shorter in ("trainer.max_epochs=1", "trainer.max_steps=4"):
        with pytest.raises(UserError, match="already has 6 steps in 2 epochs"):
            resume(tmp_path, shorter)
    assert (tmp_path / "config.yaml").read_text() == before
    resume(tmp_path)
    assert "trainer.max_epochs was" not in caplog.text
    for epochs, was in ((8, 9), (10, 9)):  # of the checkpoint
        resume(tmp_path, f"trainer.max_epochs={epochs}")
        assert f"trainer.max_epochs was {was}, is {epochs}" in caplog.text


def test_changed_options_are_remembered_before_the_next_checkpoint(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the file that has them is damaged: then the checkpoint's count."""
    train(tmp_path, [*options, "trainer.max_epochs=1"])
    for damaged in (False, True):
        with monkeypatch.context() as patch:
            at_loss(patch, 1, die)
            with pytest.raises(SystemExit):
                resume(tmp_path, "trainer.max_epochs=2", "trainer.log_every=2")
        config = tmp_path / "config.yaml"
        if damaged:
            config.write_text(config.read_text().replace("log_every: 2", "log_every: 3"))
        trainer = saved_config(tmp_path, composed("config"), "default", [])["trainer"]
        assert (trainer["max_epochs"], trainer["log_every"]) == ((1, 1) if damaged else (2, 2))


# ------------------------------------------------------------------ what is not the same run


def test_data_may_be_moved_but_not_changed(tmp_path: Path, options: list[str], sample_root: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(sample_root, data)
    train(run, [*(o for o in options if o != "data=sample"), f"data.root={data}", "trainer.max_steps=1"])
    moved = data.rename(tmp_path / "elsewhere")
    resume(run, f"data.root={moved}", "trainer.max_steps=2")
    resume(run)  # the new place is on record
    with (moved / "train" / "queries.json").open("a", encoding="utf-8") as file:
        file.write(" ")
    with pytest.raises(UserError, match=r"train/queries\.json changed"):
        resume(run, "trainer.max_steps=3")


def test_a_folder_holds_one_run(tmp_path: Path, options: list[str]) -> None:
    """One that failed before any checkpoint may be started again; others are resumed, by equal options."""
    missing = [*(o for o in options if o != "data=sample"), f"data.root={tmp_path / 'missing'}"]
    with pytest.raises(UserError, match="no such folder"):
        train(tmp_path / "run", missing)
    short = [*options, "retain.interpolation=0.7", "trainer.max_steps=1"]
    train(tmp_path / "run", short)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    with pytest.raises(UserError, match="already contains a run: resume it with resume="):
        train(tmp_path / "run", short)
    for other in ("retain.interpolation: 0.5", "retain.lora.rank: 4"):
        with pytest.raises(UserError, match=f"{other}, but the run has"):
            resume(tmp_path / "run", other.replace(": ", "="))


def test_checkpoints_are_as_readable_as_new_files(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "run", [*options, "trainer.max_steps=1"])
    mask = os.umask(0)
    os.umask(mask)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert path.stat().st_mode & 0o777 == 0o666 & ~mask, path
