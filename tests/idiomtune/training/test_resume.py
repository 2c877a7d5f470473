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

from idiomtune.benchmarks.suite import Suite
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import GLOSSARIES
from idiomtune.errors import Interrupted, UserError
from idiomtune.hub.card import ask_for_licence, common_licence, sources_of
from idiomtune.training.resume import saved_config
from idiomtune.training.run_folder import read_config
from tests.own_data import mixture_options, write_pairs
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

TOKENS = ["model.idiom_tokens=train", "retain.distillation=0"]
DISTILLATION = ["retain.distillation=0.5"]

# ------------------------------------------------------------------ resumed equals uninterrupted

# Fixture with the options of a run → what is added to them, for each kind of state that a run has.
RESUMED: dict[str, dict[str, list[str]]] = {
    "options": {
        "micro-steps": [
            *("trainer.accumulation=2", "trainer.gradient_caching=true", "trainer.matryoshka=[16,8]"),
            *("trainer.activation_checkpointing=true", "trainer.keep_checkpoints=1"),
        ],
        "remedies and tokens": [*DISTILLATION, "retain.interpolation=0.7", "model.idiom_tokens=train"],
        "adapters": [*DISTILLATION, "retain.lora.rank=4", "retain.lora.dropout=0.1"],
        "glossary": [
            *("model.glossary=sample", "model.glossary_dropout=0.5", "model.glossary_gate=true"),
        ],
    },
    "taught_options": {"teacher": ["retain.teacher_texts=all", "eval.every=2"]},
    "triplet_options": {
        "tokens with their own rate": [*TOKENS, "trainer.idiom_tokens_learning_rate=1e-2"],
        "tokens alone, groups in the file's order": [
            *(*TOKENS, "model.idiom_tokens_start=random", "trainer.only_idiom_tokens=true"),
            *("objective.order=file", "objective.whole_groups=false", "objective.groups_per_expression=null"),
        ],
    },
    "joint_options": {"joint": ["trainer.no_decay=[bias,norm]"]},
    "mixture_of_three": {"mixture": []},
    "experts_options": {
        "experts": ["eval.every=epoch", "objective.sense_features=sentence"],
        "frozen encoder": ["eval.every=epoch", "trainer.freeze_encoder=true"],
    },
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, minilm_path: str) -> Path:
    """Of another width."""
    return tiny_sentence_transformer(tmp_path_factory.mktemp("teacher"), minilm_path, size=48)


@pytest.fixture
def taught_options(options: list[str], teacher: Path) -> list[str]:
    return [*options, *DISTILLATION, f"retain.teacher='{teacher}'"]


@pytest.fixture
def mixture_of_three(tmp_path: Path, tiny_path: Path) -> list[str]:
    model = ["device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}", "data=sample"]
    length = ["trainer.batch_size=48", "trainer.max_epochs=2", "trainer.learning_rate=1e-3"]
    return [*mixture_options(tmp_path), *model, *length]


def assert_parts_are_scored_and_recorded(folder: Path) -> None:
    """Of the mixture above."""
    parts = {key.partition("/")[0] for line in metrics(folder) for key in line if key.endswith("/loss")}
    assert parts == {"faq", "rated", "idioms"}
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    assert {"own_val/faq/ndcg@10", "own_val/rated/spearman"} <= scores.keys()
    mean = (scores["own_val/faq/score"] + scores["own_val/rated/score"]) / 2
    assert scores["own_val/score"] == pytest.approx(mean)
    recorded = read_config(folder)["objective"]["parts"]
    assert recorded["idioms"]["options"]["loss"]["temperature"] == 0.03
    assert recorded["faq"]["options"]["infonce"]["temperature"] == 0.05
    assert (recorded["rated"]["batch_size"], recorded["rated"]["data"]["val_share"]) == (12, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "added"),
    [pytest.param(base, added, id=name) for base, kinds in RESUMED.items() for name, added in kinds.items()],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, request: pytest.FixtureRequest, whole_run: WholeRun, base: str, added: list[str]
) -> None:
    options = [*request.getfixturevalue(base), *added]
    whole = whole_run(options)
    assert_resumed_equals_whole(whole, tmp_path / "cut", options)
    if base == "mixture_of_three":
        assert_parts_are_scored_and_recorded(whole)


@pytest.mark.parametrize(
    ("at", "happens", "saved"),
    [
        (0, terminate, None),  # while the untrained model is scored
        (2, terminate, "step_2"),  # in mid-epoch: a checkpoint without scores
        (3, terminate, "step_3"),  # in the last step of an epoch
        (6, die, "step_3"),  # what was logged since is dropped
        (3, die, None),
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
) -> None:
    """And the mean loss that is logged at an evaluation is that of all steps since the last one."""
    caplog.set_level("INFO")
    cut, before = tmp_path / "cut", signal.getsignal(signal.SIGTERM)
    if at == 0:
        monkeypatch.setattr(Suite, "run", lambda *_, **__: terminate())
    else:
        at_loss(monkeypatch, at, happens)
    with pytest.raises((Interrupted, SystemExit)) as ended:
        train(cut, options)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is before
    if happens is terminate:
        assert f"resume it with idiomtune train resume={cut}" in str(ended.value)
        assert json.loads((cut / "run.json").read_text())["status"] == "interrupted"
        assert (cut / str(saved) / "scores.json").exists() == (at == 3)
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "los')  # cut short by the kill
    assert [path.name for path in cut.glob("step_*")] == ([saved] if saved else [])
    resume(cut)
    assert ("resuming from" if saved else "starting again from step 0") in caplog.text
    assert_same_run(whole_run(options), cut)
    lines = [record.getMessage().split(";")[0] for record in caplog.records]
    evaluations = [line for line in lines if line.startswith("epoch ")][-2:]
    losses = [line["loss"] for line in metrics(cut) if "loss" in line]
    for line, epoch in zip(evaluations, (1, 2), strict=True):
        mean = sum(losses[3 * epoch - 3 : 3 * epoch]) / 3
        assert line.startswith(f"epoch {epoch}, step {3 * epoch}: loss {mean:.4f}")


# ------------------------------------------------------------------ runs with no steps left


def test_after_its_patience_ran_out_a_run_trains_no_further(tmp_path: Path, options: list[str]) -> None:
    """Whole or resumed, in the middle of an epoch; `best/`, if lost, is made again."""
    train(tmp_path, [*options, "trainer.patience=1", "trainer.min_delta=2", "eval.every=1"])
    before, best = metrics(tmp_path), weights(tmp_path / "best")
    assert before[-1]["step"] == 2
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


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_run_keeps_the_precision_that_was_measured_at_its_start(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, is_torn: bool
) -> None:
    """By `precision=auto`, whatever a layer takes when it goes on; also where `run.json` is lost."""
    run = tmp_path / "run"
    monkeypatch.setattr("idiomtune.encoder.device.has_bf16_instructions", lambda: True)
    monkeypatch.setattr("idiomtune.encoder.device.times_as_fast_in_bf16", lambda: 1.0)
    train(run, [*options, "precision=auto", "trainer.max_epochs=1"])
    monkeypatch.setattr("idiomtune.encoder.device.times_as_fast_in_bf16", lambda: 2.0)
    if is_torn:
        (run / "run.json").write_text("{")
    resume(run, "trainer.max_epochs=2")
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert [record["precision"], record["resumed"][-1]["precision"]] == ["fp32", "fp32"]


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


def own_options(tiny_path: Path) -> list[str]:
    model = ["device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}"]
    return ["+experiment=own", *model, "trainer.batch_size=10"]


# Of what a run reads: the option, the file in its folder, and what is added to that.
READ = {
    "data": ("data.root={}", "train/queries.json", " "),
    "glossary": ("model.glossary={}/mine.tsv", "mine.tsv", "tie the knot\tget married\tno\ten\tme\tCC0\n"),
    "own": ("data.train={}/pairs.csv", "pairs.csv", "one more?,yes\n"),
}


def assert_card_is_of_own_data(run: Path) -> None:
    """It names the file, not its folder, and no licence follows."""
    scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores["own_val/score"] == scores["own_val/ndcg@10"]
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert "the user's own data (pairs.csv)" in card
    assert "new/pairs.csv" not in card.partition("idiomtune train")[0]
    assert "idiom" not in card.partition("## Use")[0].lower()
    sources = sources_of(read_config(run))
    assert common_licence(sources) is None
    assert "pairs.csv" in ask_for_licence(sources, "hub.license")


@pytest.mark.parametrize("kind", READ)
def test_what_a_run_reads_may_be_moved_but_not_changed(
    tmp_path: Path, options: list[str], tiny_path: Path, sample_root: Path, kind: str
) -> None:
    """The new place is on record; other contents, also under the same name, are refused."""
    run, old, new = tmp_path / "run", tmp_path / "old", tmp_path / "new"
    option, file, more = READ[kind]
    old.mkdir()
    if kind == "data":
        shutil.copytree(sample_root, old, dirs_exist_ok=True)
        options = [o for o in options if o != "data=sample"]
    elif kind == "glossary":
        shutil.copy(GLOSSARIES / "sample.tsv", old / file)
    else:
        write_pairs(old / file, 30)
        options = own_options(tiny_path)
    train(run, [*options, option.format(old), "trainer.max_steps=1"])
    old.rename(new)
    resume(run, option.format(new), "trainer.max_steps=2")
    resume(run)
    if kind == "own":
        assert_card_is_of_own_data(run)
    for other in ("[]", new / "yours.tsv") if kind == "glossary" else ():
        with pytest.raises(UserError, match=r"model\.glossary"):
            resume(run, f"model.glossary={other}")
    with (new / file).open("a", encoding="utf-8") as changed:
        changed.write(more)
    with pytest.raises(UserError, match=f"{file} changed"):
        resume(run, "trainer.max_steps=3")


@pytest.mark.parametrize(
    "remedy",
    [
        ["model.path={}"],
        # Of the student's width; the run needs no plain sentences for it.
        ["retain.teacher='{}'", "retain.teacher_texts=all", "objective.document_mode=span"],
    ],
    ids=["base", "teacher"],
)
def test_other_weights_under_the_same_name_are_refused(
    tmp_path: Path, options: list[str], tiny: Encoder, remedy: list[str]
) -> None:
    """A remedy goes by them, and they are loaded again."""
    tiny.save(tmp_path / "model")
    run_options = [*options, *DISTILLATION, *(option.format(tmp_path / "model") for option in remedy)]
    train(tmp_path / "run", [*run_options, "trainer.max_steps=1"])
    with torch.no_grad():
        next(tiny.parameters()).add_(0.1)
    tiny.save(tmp_path / "model")
    with pytest.raises(UserError, match="has other weights"):
        resume(tmp_path / "run", "trainer.max_steps=2")


def test_a_folder_holds_one_run(tmp_path: Path, options: list[str]) -> None:
    """One that failed before any checkpoint may be started again; others are resumed, by equal options.

    Its files are as readable as the user's other new files.
    """
    missing = [*(o for o in options if o != "data=sample"), f"data.root={tmp_path / 'missing'}"]
    with pytest.raises(UserError, match="no such folder"):
        train(tmp_path / "run", missing)
    short = [*options, "retain.interpolation=0.7", "trainer.max_steps=1"]
    train(tmp_path / "run", short)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    with pytest.raises(UserError, match="already contains a run: resume it with idiomtune train resume="):
        train(tmp_path / "run", short)
    for other in ("retain.interpolation: 0.5", "retain.lora.rank: 4"):
        with pytest.raises(UserError, match=f"{other}, but the run has"):
            resume(tmp_path / "run", other.replace(": ", "="))
    mask = os.umask(0)
    os.umask(mask)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert path.stat().st_mode & 0o777 == 0o666 & ~mask, path
