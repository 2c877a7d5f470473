"""Trackers: the figures of metrics.jsonl, one run at wandb however often it is resumed, and no harm."""

import json
import logging
import re
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from idiomtune.config import TrainSettings, validate
from idiomtune.errors import UserError
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.tracking import has_key, start_tracking
from tests.planted_runs import table_of
from tests.test_structure import ROOT
from tests.tiny_runs import (
    KEY,
    WholeRun,
    assert_same_run,
    at_loss,
    composed,
    metrics,
    resume,
    train,
)

Log = pytest.LogCaptureFixture
FOREVER = "trainer.patience=null"


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MagicMock:
    """The module `wandb`, as far as the tracker uses it, with one run."""
    fake = MagicMock()
    fake.__spec__ = ModuleSpec("wandb", None)  # so that it counts as installed
    fake.init.return_value = MagicMock(id="id0", url="https://example.org/run", summary={}, offline=True)
    fake.setup.return_value.settings.base_url = "https://wandb.example.org"
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return fake


def inits(wandb: MagicMock, name: str) -> list[Any]:
    return [call.kwargs[name] for call in wandb.init.call_args_list]


def steps(wandb: MagicMock, key: str) -> list[int]:
    calls = wandb.init.return_value.log.call_args_list
    return [call.kwargs["step"] for call in calls if key in call.args[0]]


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard's own reading of a run's event files."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected_curves(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    expected: dict[str, list[tuple[int, Any]]] = {}
    for record in map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()):
        values = {f"training/{k}": v for k, v in record.items() if k not in ("step", "scores")}
        scores = table_of(record.get("scores", {}))
        values |= {key: value for key, value in scores.items() if scores.parts[key].is_headline}
        for key, value in values.items():
            if value is not None:
                expected.setdefault(key, []).append((record["step"], pytest.approx(value, rel=1e-6)))
    return expected


def bug() -> NoReturn:
    """Reported as what it is, though failures of other processes are of this type too."""
    raise RuntimeError("a bug")


def test_trackers_get_what_metrics_jsonl_holds_and_change_nothing(
    tmp_path: Path, options: list[str], whole_run: WholeRun, wandb: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a crash too: one run, what is logged again after the resume once, and the final scorecard."""
    chosen = ["tracking=[wandb,tensorboard]", "tracking.wandb.tags=[idioms,tiny]"]
    chosen += ["tracking.wandb.log_model=best", "tracking.wandb.registry=idioms"]
    with monkeypatch.context() as crash:
        at_loss(crash, 5, bug)
        with pytest.raises(RuntimeError, match="a bug"):
            train(tmp_path, [*options, FOREVER, *chosen])
    assert [step for step, _ in curves(tmp_path)["training/loss"]] == [1, 2, 3, 4]
    resume(tmp_path)
    assert_same_run(whole_run([*options, FOREVER]), tmp_path)

    points = curves(tmp_path)
    assert points == expected_curves(tmp_path)
    assert [step for step, _ in points["training/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in points[KEY]] == [3, 6]

    run, artifact = wandb.init.return_value, wandb.Artifact
    assert inits(wandb, "id") == [None, "id0"]
    assert inits(wandb, "job_type") == ["idiolink_ft"] * 2
    assert inits(wandb, "mode") == ["offline", "offline"]  # there is no key
    assert inits(wandb, "tags")[0] == ["idioms", "tiny"]
    assert inits(wandb, "config")[0]["trainer"]["batch_size"] == 48
    assert steps(wandb, "loss") == [1, 2, 3, 4, 5, 6]
    assert steps(wandb, KEY) == [3, 6]
    assert [call.kwargs["exit_code"] for call in run.finish.call_args_list] == [1, 0]
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert run.summary == scores
    headlines = {key: value for key, value in scores.items() if table_of(scores).parts[key].is_headline}
    assert artifact.call_args.kwargs == {"type": "model", "metadata": headlines}
    artifact.return_value.add_dir.assert_called_once_with(str(tmp_path / "best"))
    run.log_artifact.assert_called_once_with(artifact.return_value, aliases=["best"])
    run.link_artifact.assert_not_called()  # which wandb does online alone


@pytest.mark.parametrize("is_full", [False, True])
def test_wandb_gets_the_best_model_and_closes_without(
    tmp_path: Path, wandb: MagicMock, caplog: Log, is_full: bool
) -> None:
    """The main process alone tracks."""
    online = [f"tracking.wandb.{o}" for o in ("mode=online", "log_model=best", "registry=idioms")]
    settings = validate(TrainSettings, composed("train", "data=sample", "tracking=wandb", *online))
    with start_tracking(RunFolder(tmp_path, writes=False), settings, "x", 0):
        wandb.init.assert_not_called()
    run = wandb.init.return_value
    run.offline = False
    run.log_artifact.side_effect = OSError("no space left") if is_full else None
    folder = RunFolder(tmp_path)
    with start_tracking(folder, settings, "mine/short", 0):
        folder.trackers[0].keep_model(tmp_path, table_of({KEY: 0.5}))
    run.finish.assert_called_once_with(exit_code=0)
    assert ("no space left" in caplog.text) == is_full
    assert wandb.Artifact.call_args.args == ("mine-short-id0",)
    if not is_full:
        run.link_artifact.assert_called_once_with(
            run.log_artifact.return_value, "wandb-registry-model/idioms"
        )


@pytest.mark.parametrize("fails_at", [None, 2])
def test_a_failing_tracker_is_one_warning_and_the_other_goes_on(
    tmp_path: Path, options: list[str], wandb: MagicMock, caplog: Log, fails_at: int | None
) -> None:
    """A connection lost at a step; and a service that is not there at all, not even offline."""
    lost = ConnectionError("no route to host")
    if fails_at is None:
        wandb.init.side_effect = lost
    else:
        wandb.init.return_value.log.side_effect = [None, lost]
    with caplog.at_level(logging.WARNING):
        train(tmp_path, [*options, "trainer.max_steps=3", "tracking=[wandb,tensorboard]"])
    assert caplog.text.count("tracking by wandb is switched off") == caplog.text.count("switched off") == 1
    assert [step for step, _ in curves(tmp_path)["training/loss"]] == [1, 2, 3]
    assert (tmp_path / "scores.json").is_file()


def test_without_network_wandb_goes_on_offline(
    tmp_path: Path, options: list[str], wandb: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    wandb.init.side_effect = [ConnectionError("no network"), wandb.init.return_value]
    train(tmp_path, [*options, "trainer.max_steps=1", "tracking=wandb"])
    assert inits(wandb, "mode") == [None, "offline"]
    assert steps(wandb, "loss") == steps(wandb, KEY) == [1]
    for path in tmp_path.rglob("*"):  # the key is nowhere
        assert path.is_dir() or b"a" * 40 not in path.read_bytes()


@pytest.mark.usefixtures("wandb")
def test_the_key_may_be_in_the_netrc_file(tmp_path: Path) -> None:
    for host, has_one in ((None, False), ("other.example.org", False), ("wandb.example.org", True)):
        if host is not None:
            (tmp_path / "netrc").write_text(f"machine {host} login user password secret\n", encoding="utf-8")
        assert has_key() == has_one


def test_a_missing_package_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="tracking=wandb"):
        validate(TrainSettings, composed("train", "+experiment=idiolink_ft", "tracking=wandb"))


def test_the_real_wandb_offline(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself takes what it is given; twice the same run, to which a tracker is added."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")  # seconds, on a busy machine
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "300")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder = tmp_path / "run"
    train(folder, [*options, "tracking=wandb", "trainer.max_steps=1", FOREVER])
    resume(folder, "trainer.max_steps=2", "tracking=[wandb,tensorboard]")
    assert [step for step, _ in curves(folder)["training/loss"]] == [2]
    run_id = json.loads((folder / "wandb.json").read_text())["id"]
    parts = sorted((folder / "wandb").glob(f"offline-run-*-{run_id}/*.wandb"))
    assert len(parts) == 2
    end = time.monotonic() + 300  # a process of wandb's own writes them
    while not (written := all(part.stat().st_size > 1000 for part in parts)) and time.monotonic() < end:
        time.sleep(0.05)
    assert written
    assert KEY.encode() in parts[0].read_bytes()
    assert [line["step"] for line in metrics(folder)] == [1, 1, 2, 2]


def test_the_sweep_in_the_documentation_starts_runs_that_are_right() -> None:
    """In wandb's command `${args_no_hyphens}` are option=value, without `--`."""
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    sweep = yaml.safe_load(block)
    *before, program = sweep["command"][:4]
    *options, last = sweep["command"][4:]
    assert (before, program, last) == (["${env}", "python", "-m"], "${program}", "${args_no_hyphens}")
    assert "tracking=wandb" in options
    assert sweep["program"] == "train"
    for choose in (min, max):
        values = {k: choose(v.get("values") or [v["min"], v["max"]]) for k, v in sweep["parameters"].items()}
        arguments = [f"{option}={value}" for option, value in values.items()]
        settings: TrainSettings = validate(TrainSettings, composed("train", *options, *arguments))
        assert sweep["metric"]["name"] in settings.possible_scores(settings.checkpoint_benchmarks)
        assert settings.trainer.learning_rate == values["trainer.learning_rate"]
