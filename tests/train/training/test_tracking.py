"""Trackers: the figures of metrics.jsonl, one run at wandb however often it is resumed, and no harm."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from tests.test_structure import ROOT
from tests.tiny_runs import KEY, assert_same_run, composed, metrics, resume, train
from train.config import TrainSettings, check
from train.config.sections import TrackingSettings
from train.declarations.registry import score_of
from train.errors import UserError
from train.training.checkpoint import checkpoints
from train.training.resume import saved_config
from train.training.run_folder import RunFolder
from train.training.tracking import TensorBoardTracker, has_key, tracked

FOREVER = "trainer.patience=null"


class FakeRun:
    """What the tracker uses of a wandb run; `where` is all that the service has of runs with this id."""

    def __init__(self, where: dict[str, Any], run_id: str, given: dict[str, Any]) -> None:
        self.id, self.url, self.where, self.given = run_id, "https://example.org/run", where, given
        self.summary, self.offline = where.setdefault("summary", {}), given["mode"] == "offline"

    def log(self, values: dict[str, Any], step: int) -> None:
        if self.where.get("fails_at") == step:
            raise ConnectionError("no route to host")
        self.where.setdefault("rows", []).append((step, values))

    def log_artifact(self, artifact: Any, aliases: list[str]) -> Any:
        if self.where.get("is_full"):
            raise OSError("no space left")
        self.where["artifact"] = (artifact, aliases)
        return artifact

    def link_artifact(self, artifact: Any, target: str) -> None:
        self.where["linked"] = (artifact, target)

    def finish(self, exit_code: int) -> None:
        self.where.setdefault("exit_codes", []).append(exit_code)


class FakeArtifact(SimpleNamespace):
    """What is said of a model, and its folder."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name=name, **given)

    def add_dir(self, folder: str) -> None:
        self.files = {path.name for path in Path(folder).iterdir()}


class FakeWandb(ModuleType):
    """The module `wandb`, as far as the tracker uses it, with a service that remembers."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: dict[str, dict[str, Any]] = {}
        self.inits: list[dict[str, Any]] = []
        self.online = True
        self.Artifact = FakeArtifact
        self.Settings = type("Settings", (SimpleNamespace,), {"model_fields": {"finish_timeout": None}})

    def setup(self) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(base_url="https://wandb.example.org"))

    def init(self, **given: Any) -> FakeRun:
        self.inits.append(given)
        if given["mode"] != "offline" and not self.online:
            raise ConnectionError("no network")
        run_id = given["id"] or f"id{len(self.runs)}"
        return FakeRun(self.runs.setdefault(run_id, {}), run_id, given)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeWandb:
    fake = FakeWandb()
    fake.__spec__ = ModuleSpec("wandb", None)  # so that it counts as installed
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return fake


@pytest.fixture
def stop_before_step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """End a run, as a crash does, when it is about to log this step."""
    real = RunFolder.log_metrics

    def at(step: int | None) -> None:
        def log_metrics(self: RunFolder, record: dict[str, Any]) -> None:
            if record["step"] == step:
                raise RuntimeError("killed")
            real(self, record)

        monkeypatch.setattr(RunFolder, "log_metrics", log_metrics)

    return at


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard's own reading of a run's event files."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def expected_curves(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    expected: dict[str, list[tuple[int, Any]]] = {}
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    for record in map(json.loads, lines):
        values = {f"training/{k}": v for k, v in record.items() if k not in ("step", "scores")}
        values |= {key: value for key, value in record.get("scores", {}).items() if score_of(key).is_headline}
        for key, value in values.items():
            if value is not None:
                expected.setdefault(key, []).append((record["step"], pytest.approx(value, rel=1e-6)))
    return expected


def test_tensorboard_shows_what_metrics_jsonl_holds_and_changes_nothing(
    tmp_path: Path, options: list[str], stop_before_step: Any
) -> None:
    """Through a crash too: what is logged again after the resume stands there once."""
    plain, followed = tmp_path / "plain", tmp_path / "followed"
    train(plain, [*options, FOREVER])
    stop_before_step(5)
    with pytest.raises(RuntimeError, match="killed"):
        train(followed, [*options, FOREVER, "tracking=tensorboard"])
    assert [step for step, _ in curves(followed)["training/loss"]] == [1, 2, 3, 4]
    stop_before_step(None)
    resume(followed)
    shown = curves(followed)
    assert shown == expected_curves(followed)
    assert [step for step, _ in shown["training/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in shown[KEY]] == [3, 6]
    assert_same_run(plain, followed)


def test_tensorboard_shows_all_scores_on_request_and_those_of_the_end(tmp_path: Path) -> None:
    scores = {KEY: 0.5, f"{KEY}/literal": 0.4}
    for name, monitor, expected in (("main", [KEY], {KEY}), ("all", None, set(scores))):
        tracker = TensorBoardTracker(tmp_path / name / "tensorboard", 0, monitor)
        tracker.log({"step": 3, "loss": 1.0, "scores": {KEY: 0.5}})
        tracker.summarise(scores, 2)
        tracker.close(succeeded=True)
        shown = curves(tmp_path / name)
        assert shown.keys() == {"training/loss", *expected}
        assert [step for step, _ in shown[KEY]] == [3]
    assert [step for step, _ in shown[f"{KEY}/literal"]] == [2]


def test_wandb_gets_one_run_each_step_once_and_the_final_scorecard(
    tmp_path: Path, options: list[str], wandb: FakeWandb, stop_before_step: Any
) -> None:
    folder = tmp_path / "run"
    chosen = [*options, FOREVER, "tracking=wandb", "tracking.wandb.tags=[idioms,tiny]"]
    chosen += ["tracking.wandb.log_model=best", "tracking.wandb.registry=idioms"]
    stop_before_step(5)
    with pytest.raises(RuntimeError, match="killed"):
        train(folder, chosen)
    stop_before_step(None)
    resume(folder)
    assert len(wandb.runs) == 1
    (run,) = wandb.runs.values()
    assert [given["id"] for given in wandb.inits] == [None, "id0"]
    assert wandb.inits[0]["mode"] == "offline"  # there is no key
    assert wandb.inits[0]["tags"] == ["idioms", "tiny"]
    assert wandb.inits[0]["config"]["trainer"]["batch_size"] == 48
    assert [step for step, values in run["rows"] if "loss" in values] == [1, 2, 3, 4, 5, 6]
    assert [step for step, values in run["rows"] if KEY in values] == [3, 6]
    assert run["exit_codes"] == [1, 0]
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    assert run["summary"] == scores
    artifact, aliases = run["artifact"]
    assert (artifact.type, aliases) == ("model", ["best"])
    assert {"model.safetensors", "README.md"} <= artifact.files
    assert artifact.metadata == {key: value for key, value in scores.items() if score_of(key).is_headline}
    assert "linked" not in run  # which wandb does online alone


@pytest.mark.parametrize("is_full", [False, True])
def test_wandb_keeps_the_best_model_and_closes_without(
    tmp_path: Path, wandb: FakeWandb, caplog: pytest.LogCaptureFixture, is_full: bool
) -> None:
    wandb.runs["id0"] = {"is_full": is_full}
    given: dict[str, Any] = {"name": "wandb", "project": "idioms", "entity": None, "group": None, "tags": []}
    tracking = {"wandb": given | {"mode": "online", "log_model": "best", "registry": "idioms"}}
    (tmp_path / "wandb.json").write_text('{"id": "id0"}', encoding="utf-8")
    folder = RunFolder(tmp_path)
    with tracked(folder, TrackingSettings.model_validate(tracking), {}, "mine/short", 0):
        folder.trackers[0].keep_model(tmp_path, {KEY: 0.5})
    run = wandb.runs["id0"]
    assert run["exit_codes"] == [0]
    if is_full:
        assert "no space left" in caplog.text
    else:
        artifact, _ = run["artifact"]
        assert artifact.name == "mine-short-id0"
        assert run["linked"] == (artifact, "wandb-registry-model/idioms")


@pytest.mark.parametrize("fails_at", [None, 2])
def test_a_failing_tracker_is_one_warning_and_the_other_goes_on(
    tmp_path: Path,
    options: list[str],
    wandb: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails_at: int | None,
) -> None:
    """A connection lost at a step; and a service that is not there at all, not even offline."""
    if fails_at is None:
        monkeypatch.setattr(wandb, "init", lambda **_: 1 / 0)
    else:
        wandb.runs["id0"] = {"fails_at": fails_at}
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "wandb.json").write_text('{"id": "id0", "last_step": 0}', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "run", [*options, "trainer.max_steps=3", "tracking=[wandb,tensorboard]"])
    said = [r.getMessage() for r in caplog.records if "switched off" in r.getMessage()]
    assert len(said) == 1
    assert "tracking by wandb is switched off" in said[0]
    assert [step for step, _ in curves(tmp_path / "run")["training/loss"]] == [1, 2, 3]
    assert (tmp_path / "run" / "scores.json").is_file()


def test_without_network_wandb_goes_on_offline(
    tmp_path: Path, options: list[str], wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    wandb.online = False
    train(tmp_path / "run", [*options, "trainer.max_steps=1", "tracking=wandb"])
    assert [given["mode"] for given in wandb.inits] == [None, "offline"]
    assert [step for step, _ in wandb.runs["id0"]["rows"]] == [1, 1]
    for path in (tmp_path / "run").rglob("*"):  # the key is nowhere
        assert path.is_dir() or b"a" * 40 not in path.read_bytes()


def test_one_process_of_several_tracks(tmp_path: Path, wandb: FakeWandb) -> None:
    chosen: Mapping[str, Any] = composed("config", "tracking=wandb")["tracking"]
    with tracked(RunFolder(tmp_path, writes=False), TrackingSettings.model_validate(chosen), {}, "x", 0):
        assert not wandb.inits


def test_the_key_may_be_in_the_netrc_file(tmp_path: Path, wandb: FakeWandb) -> None:
    assert wandb is sys.modules["wandb"]
    assert not has_key()
    netrc = tmp_path / "netrc"
    netrc.write_text("machine other.example.org login user password secret\n", encoding="utf-8")
    assert not has_key()
    netrc.write_text("machine wandb.example.org login user password secret\n", encoding="utf-8")
    assert has_key()


def test_a_missing_package_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"tracking=wandb needs the package wandb.*pip install"):
        check(TrainSettings, composed("config", "+experiment=idiolink_ft", "tracking=wandb"))


def test_tracking_may_change_on_resume(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path, [*options, "trainer.max_steps=1"])
    given = ["tracking=tensorboard"]
    config = saved_config(tmp_path, composed("config", *given), "default", given)
    assert check(TrainSettings, config).tracking.tensorboard is not None


def test_the_real_wandb_offline(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself takes what it is given; twice the same run, as after an interruption."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder = tmp_path / "run"
    train(folder, [*options, "tracking=wandb", "trainer.max_steps=3", FOREVER])
    resume(folder, "trainer.max_epochs=2", "trainer.max_steps=4")
    run_id = json.loads((folder / "wandb.json").read_text())["id"]
    parts = sorted((folder / "wandb").glob(f"offline-run-*-{run_id}/*.wandb"))
    assert len(parts) == 2
    end = time.monotonic() + 20  # a process of wandb's own writes them
    while not (written := all(part.stat().st_size > 1000 for part in parts)) and time.monotonic() < end:
        time.sleep(0.05)
    assert written
    assert KEY.encode() in parts[0].read_bytes()
    assert [line["step"] for line in metrics(folder)] == [1, 2, 3, 3, 4, 4]
    assert checkpoints(folder)[-1].name == "step_4"


def test_the_sweep_in_the_documentation_starts_runs_that_are_right() -> None:
    """In wandb's command `${args_no_hyphens}` are option=value, without `--`."""
    text = (ROOT / "docs" / "tracking.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    sweep = yaml.safe_load(block)
    before, (program, *options), last = sweep["command"][:3], sweep["command"][3:-1], sweep["command"][-1]
    assert (before, program, last) == (["${env}", "python", "-m"], "${program}", "${args_no_hyphens}")
    assert "tracking=wandb" in options
    name = {"train": "config", "train.evaluate": "evaluate"}[sweep["program"]]
    for choose in (min, max):
        values = {k: choose(v.get("values") or [v["min"], v["max"]]) for k, v in sweep["parameters"].items()}
        arguments = [f"{option}={value}" for option, value in values.items()]
        settings: TrainSettings = check(TrainSettings, composed(name, *options, *arguments))
        assert sweep["metric"]["name"] in settings.score_keys(settings.checkpoint_benchmarks)
        assert settings.trainer.learning_rate == values["trainer.learning_rate"]
