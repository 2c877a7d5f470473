"""Stop here, resume there: a run that was cut short ends as if it had not been; another run is refused."""

import json
import logging
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune import Encoder
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import TrainSettings, validate
from idiomtune.errors import Interrupted, UserError
from idiomtune.glossaries.tables import GLOSSARIES
from idiomtune.io.files import fingerprint, write_json
from idiomtune.io.run_files import checkpoints, read_config, verify
from idiomtune.training.checkpoint import TrainerState, new_checkpoint
from idiomtune.training.resume import (
    _check_length,
    _checkpoint_to_resume,
    find_run,
    newest_unfinished,
    saved_config,
    saved_record,
)
from tests.benchmarks import benchmarks_of
from tests.faults import NO_FAULT, Fault, How, Outcome, attempted
from tests.own_data import mixture_options, write, write_pairs
from tests.programs import refused
from tests.tiny_runs import (
    KEY,
    WholeRun,
    assert_resumed_equals_whole,
    assert_same_run,
    at_loss,
    files_of,
    metrics,
    resume,
    terminate,
    train,
    weights,
)

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
DISTILLATION = ["forgetting.distillation=0.5"]

# Fixture with the options of a run → what is added to them, for each kind of state that a run has.
RESUMED: dict[str, dict[str, list[str]]] = {
    "options": {
        "micro-steps and a glossary": [
            *("trainer.accumulation=2", "trainer.gradient_caching=true"),
            *("trainer.activation_checkpointing=true", "trainer.keep_checkpoints=1"),
            *("model.glossary=sample", "model.glossary_dropout=0.5", "model.glossary_gate=true"),
        ],
        "remedies and tokens": [
            *DISTILLATION,
            "forgetting.weight_interpolation=0.7",
            "model.idiom_tokens=train",
        ],
        "adapters": [*DISTILLATION, "forgetting.lora.rank=4", "forgetting.lora.dropout=0.1"],
    },
    "mixture_of_three": {"mixture": ["trainer.no_decay=[bias,norm]"]},
}


@pytest.fixture
def mixture_of_three(tmp_path: Path, tiny_path: Path) -> list[str]:
    model = ["device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}", "data=sample"]
    length = ["trainer.batch_size=48", "trainer.max_epochs=2", "trainer.learning_rate=1e-3"]
    return [*mixture_options(tmp_path), *model, *length]


def assert_parts_are_scored(folder: Path) -> None:
    parts = {key.partition("/")[0] for line in metrics(folder) for key in line if key.endswith("/loss")}
    assert parts == {"faq", "rated", "idioms"}
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    mean = (scores["own_val/faq/score"] + scores["own_val/rated/score"]) / 2
    assert scores["own_val/score"] == pytest.approx(mean)


def assert_scores_are_of_the_saved_model(run: Path, remedies: list[str]) -> None:
    benchmarks, _ = benchmarks_of(validate(TrainSettings, read_config(run)))
    scored = Suite(benchmarks).run(Encoder.from_pretrained(run / "step_3", device="cpu")).scores
    assert scored == json.loads((run / "step_3" / "scores.json").read_text())["scores"]
    assert ["distillation" in line for line in metrics(run) if "loss" in line] == [True] * 6
    assert not (run / "best" / "trained.safetensors").exists()
    has_adapters = "forgetting.lora.rank=4" in remedies
    assert (run / "best" / "adapter" / "adapter_model.safetensors").exists() == has_adapters


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
        assert_parts_are_scored(whole)
    if "forgetting." in added[0]:
        assert_scores_are_of_the_saved_model(whole, added)


@pytest.mark.parametrize("step", [0, 3])
def test_sigterm_saves_the_step(
    tmp_path: Path, options: list[str], whole_run: WholeRun, monkeypatch: Patch, step: int
) -> None:
    """While the untrained model is scored, and in an epoch's last step, which has scores."""
    cut, before = tmp_path / "cut", signal.getsignal(signal.SIGTERM)
    if step:
        at_loss(monkeypatch, step, terminate)
    else:
        monkeypatch.setattr(Suite, "run", lambda *_, **__: terminate())
    with pytest.raises(Interrupted, match=f"resume={cut}"):
        train(cut, options)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is before
    assert json.loads((cut / "run.json").read_text())["status"] == "interrupted"
    assert [path.name for path in cut.glob("step_*")] == [f"step_{step}"] * (step > 0)
    assert (cut / f"step_{step}" / "scores.json").exists() == (step == 3)
    resume(cut)
    assert_same_run(whole_run(options), cut)


# Of the run that was not killed: its folder, its options, and the points that it passed.
Whole = tuple[Path, list[str], list[str]]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Three evaluations in six steps, the first of which is no longer kept at the end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_options = [*options, "eval.every=2"]
    outcome = attempted(folder, run_options)
    assert outcome.status == 0, outcome.output
    assert set(outcome.points) >= {part for what, _, then, _ in CUT for part in (what, then)}
    return folder, run_options, outcome.points


def go_on(whole: Whole, folder: Path, fault: Fault = NO_FAULT) -> Outcome:
    """Start it again as a user does; checks that it goes on from the newest checkpoint there is."""
    if not (folder / "run.json").exists():
        return attempted(folder, whole[1], fault)
    saved = max((int(path.name[5:]) for path in folder.glob("step_*")), default=None)
    outcome = attempted(folder, None, fault)
    if outcome.status == 0 or "training" in outcome.points:
        assert (f"resuming from {folder}/step_{saved}" if saved else "from step 0") in outcome.output
    assert "cannot resume from" not in outcome.output  # what is there under its name is whole
    return outcome


# A part of the run in which it is ended, and how; then a later one, of the run that goes on, and how.
CUT: list[tuple[str, How, str, How]] = [
    ("record", "torn", "saving", "full"),
    ("saving", "kill", "re-scoring", "kill"),
    ("metrics", "torn", "saving", "torn"),
    ("best", "kill", "pruning", "kill"),
]


@pytest.mark.parametrize(("what", "how", "then", "again"), CUT, ids=lambda value: value)
def test_killed_anywhere_torn_or_out_of_space(
    tmp_path: Path, whole: Whole, what: str, how: How, then: str, again: How
) -> None:
    """Half a line, half weights, half a score card lose nothing; nor does a full disk, which is reported."""
    draw, folder, (whole_folder, options, points) = random.Random(f"{what} {then}"), tmp_path / "run", whole
    first = draw.choice([n for n, name in enumerate(points, 1) if name == what and then in points[n:]])
    second = draw.randint(1, points[first:].count(then))  # the resumed run passes at least these
    history = f"{how} at point {first}, resumed and {again} at {then} {second}"
    killed = attempted(folder, options, Fault(points[:first].count(what), what, how))
    assert killed.killed, history
    assert how != "kill" or killed.points == points[:first], history
    assert all(verify(path) is None for path in checkpoints(folder)), history
    ended = go_on(whole, folder, Fault(second, then, again))
    assert (ended.status == 2) if again == "full" else ended.killed, (history, ended.output)
    if again == "full":
        newest = max((int(path.name[5:]) for path in folder.glob("step_*")), default=None)
        assert "error: " in ended.output
        assert (f": {folder}/step_{newest}" if newest else "No checkpoint") in ended.output, history
    last = go_on(whole, folder)
    assert last.status == 0, (history, last.output)
    assert_same_run(whole_folder, folder)
    assert files_of(whole_folder) == files_of(folder), history


def test_after_its_patience_ran_out_a_run_trains_no_further(tmp_path: Path, options: list[str]) -> None:
    """Whole or resumed, in the middle of an epoch; `best/`, if lost, is made again.

    No score can improve by 2, so patience counts from the first evaluation on.
    """
    train(tmp_path, [*options, "trainer.patience=1", "trainer.min_delta=2", "eval.every=1"])
    before, best = metrics(tmp_path), weights(tmp_path / "best")
    assert before[-1]["step"] == 2
    scores = [line["scores"] for line in before if "scores" in line]
    best_step = 1 + (scores[1][KEY] > scores[0][KEY])
    card = json.loads((tmp_path / "scores.json").read_text())
    assert (card["meta"]["checkpoint"], card["scores"]) == (f"step_{best_step}", scores[best_step - 1])
    shutil.rmtree(tmp_path / "best")
    resume(tmp_path)
    assert metrics(tmp_path) == before
    again = weights(tmp_path / "best")
    assert all(torch.equal(again[name], best[name]) for name in best)


def test_a_run_keeps_the_precision_of_its_start(
    tmp_path: Path, options: list[str], monkeypatch: Patch
) -> None:
    """By `precision=auto`, whatever instructions the processor has then; also where `run.json` is lost."""
    monkeypatch.setattr("idiomtune.encoder.device.has_bf16_instructions", lambda: False)
    train(tmp_path, [*options, "precision=auto", "trainer.max_steps=1"])
    monkeypatch.setattr("idiomtune.encoder.device.has_bf16_instructions", lambda: True)
    (tmp_path / "run.json").write_text("{")
    resume(tmp_path, "trainer.max_steps=2")
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [record["precision"], record["resumed"][-1]["precision"]] == ["fp32", "fp32"]


def test_what_a_run_reads_may_be_moved_but_not_changed(tmp_path: Path, tiny_path: Path) -> None:
    """The new place is on record; other contents, also under the same name, are refused."""
    run, old, new = tmp_path / "run", tmp_path / "old", tmp_path / "new"
    write_pairs(old / "pairs.csv", 30)
    shutil.copy(GLOSSARIES / "sample.tsv", old / "mine.tsv")

    def files(folder: Path) -> list[str]:
        return [f"data.train={folder}/pairs.csv", f"model.glossary={folder}/mine.tsv"]

    model = ["device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}"]
    train(run, ["+experiment=own", *model, "trainer.batch_size=10", *files(old), "trainer.max_steps=1"])
    old.rename(new)
    resume(run, *files(new), "trainer.max_steps=2")
    resume(run)
    with pytest.raises(UserError, match=r"model\.glossary"):
        resume(run, "model.glossary=[]")
    for name, row in (("mine.tsv", "tie the knot\tget married\tno\ten\tme\tCC0\n"), ("pairs.csv", "a?,b\n")):
        content = (new / name).read_text(encoding="utf-8")
        write(new / name, content + row)
        with pytest.raises(UserError, match=name):
            resume(run, "trainer.max_steps=3")
        write(new / name, content)


def test_other_weights_under_the_same_name_are_refused(
    tmp_path: Path, options: list[str], tiny: Encoder
) -> None:
    """A remedy goes by them, and they are loaded again."""
    tiny.save(tmp_path / "model")
    run_options = [*options, *DISTILLATION, f"model.path={tmp_path / 'model'}"]
    train(tmp_path / "run", [*run_options, "trainer.max_steps=1"])
    with torch.no_grad():
        next(tiny.parameters()).add_(0.1)
    tiny.save(tmp_path / "model", overwrite=True)
    with pytest.raises(UserError, match="weights"):
        resume(tmp_path / "run", "trainer.max_steps=2")


def test_a_folder_holds_one_run(tmp_path: Path, options: list[str]) -> None:
    """One that failed before any checkpoint may be started again; others are resumed, by equal options.

    Its files are as readable as the user's other new files.
    """
    missing = [*(o for o in options if o != "data=sample"), f"data.idiolink={tmp_path / 'missing'}"]
    with pytest.raises(UserError, match="missing"):
        train(tmp_path / "run", missing)
    short = [*options, "forgetting.weight_interpolation=0.7", "trainer.max_steps=1"]
    train(tmp_path / "run", short)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    with pytest.raises(UserError, match="idiomtune train resume="):
        train(tmp_path / "run", short)
    for other in ("forgetting.weight_interpolation=0.5", "forgetting.lora.rank=4"):
        with pytest.raises(UserError, match=other.partition("=")[0]):
            resume(tmp_path / "run", other)
    mask = os.umask(0)
    os.umask(mask)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert path.stat().st_mode & 0o777 == 0o666 & ~mask, path


THEN: dict[str, Any] = {
    "seed": 0,
    "run_dir": None,
    "resume": None,
    "tracking": {"backend": None},
    "trainer": {"max_epochs": 2, "learning_rate": 0.1, "ema": None},
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
    write_json(run / "run.json", {"status": status, "experiment": "x"})
    os.utime(run / "run.json", (written, written))
    return run


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


def test_which_run_is_resumed(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_run([]) is find_run(["resume=null"]) is find_run(["resume=auto"]) is None
    run = start(Path("checkpoints/mine/one"), "running", 100)
    assert find_run([f"resume={run}"]) == str(run)
    assert find_run(["resume=auto"]) is None, "of no experiment"
    assert find_run(["resume=auto", "+experiment=mine"]) == str(run)
    assert find_run(["resume=auto", "+experiment=mine", "run_dir=other"]) is None
    assert find_run(["resume=auto", f"run_dir='{run}'"]) == str(run)
    with pytest.raises(UserError, match=str(run.resolve())):
        find_run([f"resume={save(run, 2)}"])
    with pytest.raises(UserError, match="resume=nowhere"):
        find_run(["resume=nowhere"])
    (run / "run.json").unlink()
    assert find_run([f"resume={run}"]) == str(run), "its checkpoints are enough"


def test_the_newest_unfinished_run_by_what_it_wrote_last(tmp_path: Path, monkeypatch: Patch) -> None:
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
    start(Path("elsewhere"), "running", 900)
    assert newest_unfinished("*") == Path("checkpoints/other/run")
    assert newest_unfinished("x") is None


def changed(**sections: Any) -> dict[str, Any]:
    return {
        name: value | sections.get(name, {}) if isinstance(value, dict) else sections.get(name, value)
        for name, value in (THEN | {key: None for key in sections if key not in THEN}).items()
    }


ALLOWED: dict[str, dict[str, Any]] = {
    "trainer.max_epochs=5": {"trainer": {"max_epochs": 5}},
    "model.glossary=[there/g.csv]": {"model": {"glossary": ["there/g.csv"]}},
    "tracking.backend=files": {"tracking": {"backend": "files", "folder": "its default"}},
    "objective=own": {},
    "device=mps": {},
    "data.idiolink=there": {"data": {"idiolink": "there"}},
}


@pytest.mark.parametrize("override", ALLOWED)
def test_what_may_change_is_taken_over(tmp_path: Path, override: str) -> None:
    save(tmp_path, 2, RECORDED)
    now = changed(**ALLOWED[override], run_dir=str(tmp_path)) | {"resume": "auto"}
    overrides = [override, "resume=auto", "+experiment=x", "hydra.verbose=true", f"run_dir={tmp_path}"]
    found = saved_config(tmp_path, now, "x", overrides)
    for section, options in ALLOWED[override].items():
        assert found[section] == THEN.get(section, {}) | options
    assert (found["seed"], found["resume"]) == (0, str(tmp_path))


# Overrides → the new configuration, and what is named, once.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "seed=1": ({"seed": 1}, "seed: 1"),
    "trainer.learning_rate=0.2": ({"trainer": {"learning_rate": 0.2}}, "trainer.learning_rate: 0.2"),
    "model.glossary=there/h.csv": ({"model": {"glossary": "there/h.csv"}}, "here/g.csv"),
    "+protocol=folds": ({}, "protocol=folds"),
    "run_dir=other": ({"run_dir": "other"}, "run_dir: other"),
    "objective=own objective.size=2": ({"objective": {"size": 2}}, "objective.size: 2"),
    "+experiment=y": ({}, "experiment: y"),
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_what_may_not_change_is_named(tmp_path: Path, overrides: str) -> None:
    save(tmp_path, 2, RECORDED)
    sections, named = REFUSED[overrides]
    experiment = "y" if "experiment" in overrides else "default"
    error = refused(lambda: saved_config(tmp_path, changed(**sections), experiment, overrides.split()))
    assert str(error).count(named) == 1


def test_a_run_that_lacks_an_option_is_of_another_version(tmp_path: Path) -> None:
    save(tmp_path, 2, RECORDED)
    error = refused(lambda: saved_config(tmp_path, changed(trainer={"newer": 1}), "x", []))
    assert "trainer.newer" in str(error)


def test_the_runs_own_configuration_is_the_newest_if_it_is_whole(tmp_path: Path) -> None:
    """It has what was changed by a resumed run that saved no checkpoint."""
    save(tmp_path, 2, RECORDED)
    path = tmp_path / "config.yaml"
    write_json(path, changed(seed=7, data={}))
    write_json(tmp_path / "run.json", {"experiment": "x", "config_sum": fingerprint(path)})
    assert saved_config(tmp_path, changed(), "x", [])["seed"] == 7
    write_json(path, changed(seed=8, data={}))
    assert saved_config(tmp_path, changed(), "x", [])["seed"] == 0


def test_without_its_best_model_a_run_is_not_resumed(tmp_path: Path) -> None:
    best, newest = save(tmp_path, 2, best_step=2), save(tmp_path, 4, best_step=2)
    (best / "model.safetensors").write_text("damaged")
    with pytest.raises(UserError, match=str(tmp_path)):
        _checkpoint_to_resume(tmp_path)
    assert newest.is_dir()


@pytest.mark.parametrize(
    ("max_epochs", "max_steps", "fits", "is_told"),
    [
        (1, None, False, False),
        (3, None, True, True),
        (2, 15, True, True),
    ],
)
def test_a_run_may_become_longer_but_not_shorter_than_it_is(
    max_epochs: int, max_steps: int | None, fits: bool, is_told: bool, caplog: Log
) -> None:
    state = TrainerState(step=15, epoch=1, step_in_epoch=1)
    before = {"max_epochs": 2, "max_steps": None}
    trainer = {"max_epochs": max_epochs, "max_steps": max_steps, "schedule": "linear"}
    with caplog.at_level(logging.WARNING):
        if not fits:
            with pytest.raises(UserError, match=f"15 steps.*max_epochs={max_epochs}"):
                _check_length(before, trainer, state)
            return
        _check_length(before, trainer, state)
        assert ("trainer.max_" in caplog.text) == is_told
        caplog.clear()
        trainer["schedule"] = "constant"
        _check_length(before, trainer, state)
        assert not caplog.records
    _check_length(before, trainer, TrainerState(step=15, epoch=2))  # no third one is begun
