"""Searches: what a study asks for is run, each trial in a folder of its own, whatever fails."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import optuna
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from optuna.study import StudyDirection

from idiomtune.commands.train import main
from idiomtune.config import TrainSettings, check
from idiomtune.config.compose import config_names
from idiomtune.config.sections import SearchSettings
from idiomtune.declarations.models import CONF
from idiomtune.errors import Pruned
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.search import example, outcome_of, reporter, split_overrides
from tests.tiny_runs import KEY, composed, resume

OTHER = "idiolink/val/sentence/r_precision"
LR = "trainer.learning_rate"
SPACE = f"{LR}=tag(log,interval(1e-5,1e-1))"
Search = Callable[..., int]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str]) -> Search:
    """`idiomtune train -m …` in this process, in the folder `sweep`; gives its exit status."""

    def run(*arguments: str) -> int:
        own = [option for option in options if not option.startswith(LR)]
        folder = f"hydra.sweep.dir={tmp_path / 'sweep'}"
        monkeypatch.setattr(sys, "argv", ["train", "-m", "hydra/sweeper=optuna", folder, *own, *arguments])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


def raised(error: BaseException) -> float:
    raise error


class FakeRuns:
    """In place of `fine_tune`: what a run leaves, its scores a function of the learning rate."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.happens: dict[int, Callable[[], float]] = {}  # in the n-th run, from 0

    def __call__(
        self, settings: TrainSettings, _config: Any, _experiment: str, run: RunFolder, **rest: Any
    ) -> float:
        run.path.mkdir(parents=True, exist_ok=True)
        assert not (run.path / "run.json").exists()  # no two jobs share a folder
        rate = settings.trainer.learning_rate
        self.rates.append(rate)
        score = 1 - abs(math.log10(rate) + 3) / 2  # best at 1e-3
        record = {"status": "interrupted"}
        try:
            score = self.happens.get(len(self.rates) - 1, lambda: score)()
            for epoch in range(1, settings.trainer.max_epochs):
                if rest["on_scores"] is not None:
                    rest["on_scores"]({KEY: score * epoch / 10})
            record = {"status": "finished"}
        except Pruned as pruned:
            record = {"status": "pruned", "reason": str(pruned)}
            raise
        except Exception as error:
            record = {"status": "failed", "error": str(error)}
            raise
        finally:
            (run.path / "run.json").write_text(json.dumps(record), encoding="utf-8")
        card = {"scores": {KEY: score, OTHER: 1 - rate}, "meta": {"monitor": settings.trainer.monitor}}
        (run.path / "scores.json").write_text(json.dumps(card), encoding="utf-8")
        return score


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeRuns:
    """Without plots, which take longer than all the rest, except where they are tested."""
    runs = FakeRuns()
    monkeypatch.setattr("idiomtune.programs.fine_tune.fine_tune", runs)
    if request.function is not test_two_objectives_give_a_front:
        monkeypatch.setattr("idiomtune.training.search.plot_search", lambda *_: None)
    return runs


def report(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "sweep" / "search.json").read_text(encoding="utf-8"))
    return content


def states(tmp_path: Path) -> list[str]:
    return [trial["state"] for trial in report(tmp_path)["trials"]]


def plots(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "sweep" / "plots").iterdir() if path.stat().st_size > 5000}


def test_real_runs_are_searched_and_pruned(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three real runs of two epochs: the third, which learns nothing, is given up after its first."""
    # With this seed the sampler draws 3e-3, 3e-3, 1e-9.
    status = search(
        *(f"{LR}=choice(3e-3,1e-9)", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler=random"),
        *("hydra.sweeper.seed=6", "hydra.sweeper.pruner=median", "hydra.sweeper.pruner_startup_trials=2"),
    )
    assert status == 0
    assert states(tmp_path) == ["complete", "complete", "pruned"]
    given_up = tmp_path / "sweep" / "2"
    run = json.loads((given_up / "run.json").read_text())
    assert run["status"] == "pruned"
    assert "others were better" in run["reason"]
    assert (given_up / "step_3" / "scores.json").is_file()
    assert (given_up / "best" / "model.safetensors").is_file()
    assert not (given_up / "scores.json").exists()
    complete = report(tmp_path)["trials"][0]
    card = json.loads((tmp_path / "sweep" / "0" / "scores.json").read_text())
    assert complete["values"]["trainer.monitor"] == pytest.approx(card["scores"][KEY])
    assert plots(tmp_path) == {"history.png", "parameters.png", "importance.png"}
    out = capsys.readouterr().out
    assert f"{LR}=0.003" in out
    assert out.splitlines()[-1] == str(tmp_path / "sweep")
    resume(given_up)  # it can be finished all the same
    assert json.loads((given_up / "run.json").read_text())["status"] == "finished"


def test_a_search_finds_what_is_best_and_goes_on_where_it_stood(
    search: Search, fake: FakeRuns, tmp_path: Path
) -> None:
    """Also in another folder with the same storage: no trial is run twice."""
    storage = f"hydra.sweeper.storage=journal:{tmp_path / 'study.log'}"
    command = [SPACE, storage, "hydra.sweeper.startup_trials=2"]
    for num_trials, folder in ((4, "sweep"), (4, "sweep"), (5, "sweep"), (6, "other")):
        there = f"hydra.sweep.dir={tmp_path / folder}"
        assert search(*command, f"hydra.sweeper.n_trials={num_trials}", there) == 0
        assert len(set(fake.rates)) == len(fake.rates) == num_trials
    (number,) = report(tmp_path)["best"]
    assert fake.rates[number] == max(fake.rates[:5], key=lambda rate: -abs(math.log10(rate) + 3))
    folders = [[p.name for p in (tmp_path / f).iterdir() if p.name.isdigit()] for f in ("sweep", "other")]
    assert (sorted(folders[0]), folders[1]) == (["0", "1", "2", "3", "4"], ["5"])


def test_what_fails_or_is_killed_is_made_up_for(
    search: Search, fake: FakeRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only finished trials count; all failed is a failure; a killed one is run again, in another folder."""
    fake.happens = {0: lambda: raised(RuntimeError("this one breaks")), 1: lambda: math.nan}
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 2
    assert "this one breaks" in capsys.readouterr().err
    assert states(tmp_path) == ["fail", "fail"]
    first, second = report(tmp_path)["trials"]
    assert "this one breaks" in first["reason"]
    assert "nan" in second["reason"]
    fake.happens = {3: lambda: raised(KeyboardInterrupt())}
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 130
    assert states(tmp_path)[2:] == ["complete", "running"]
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 0
    assert states(tmp_path)[2:] == ["complete", "fail", "complete"]
    assert fake.rates[4] == fake.rates[3]
    assert len({trial["folder"] for trial in report(tmp_path)["trials"]}) == 5


def test_a_study_is_not_mixed_with_another(
    search: Search, fake: FakeRuns, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert search(SPACE, "hydra.sweeper.n_trials=1") == 0
    assert search(SPACE, "hydra.sweeper.n_trials=2", "trainer.batch_size=24") == 2
    assert "overrides" in capsys.readouterr().err
    assert search(f"{LR}=interval(1e-5,1e-3)", "hydra.sweeper.n_trials=2") == 2
    assert "space" in capsys.readouterr().err
    assert search(SPACE, "hydra.sweeper.n_trials=2", "device=auto", "trainer.log_every=5") == 0
    assert len(fake.rates) == 2
    for direction, num_trials in ((StudyDirection.MINIMIZE, 0), (StudyDirection.MAXIMIZE, 1)):
        url = f"sqlite:///{tmp_path / direction.name}.db"  # somebody else's
        theirs = optuna.create_study(study_name="theirs", storage=url, directions=[direction])
        for _ in range(num_trials):
            theirs.enqueue_trial({"dropout": 0.1})
        assert search(SPACE, "hydra.sweeper.study=theirs", f"hydra.sweeper.storage='{url}'") == 2
        assert "'theirs'" in capsys.readouterr().err
        assert len(optuna.load_study(study_name="theirs", storage=url).trials) == num_trials
    assert len(fake.rates) == 2


@pytest.mark.usefixtures("fake")
def test_two_objectives_give_a_front(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """KEY is best at 1e-3, OTHER the smaller the rate: above 1e-3 neither is."""
    assert search(SPACE, "hydra.sweeper.n_trials=4", f"hydra.sweeper.objectives=[{KEY},{OTHER}]") == 0
    content = report(tmp_path)
    assert content["objectives"] == {KEY: "maximize", OTHER: "maximize"}
    points = [(trial["values"][KEY], trial["values"][OTHER]) for trial in content["trials"]]
    front = [
        n for n, a in enumerate(points) if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in points)
    ]
    assert content["best"] == front
    each = {f"{name}_{number}.png" for name in ("history", "parameters", "importance") for number in (1, 2)}
    assert plots(tmp_path) == {"pareto.png"} | each
    out = capsys.readouterr().out
    assert f"Pareto front of {len(front)}" in out
    assert all(f"trial {number}: {LR}=" in out for number in front)


FOREIGN = "a database that is no study"


@pytest.mark.parametrize(
    ("arguments", "named", "study"),
    [
        ([SPACE, "hydra.sweeper.objectives=[idiolink/val/sentence/ndgc]"], "ndcg@10", None),
        ([SPACE, "hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials", None),
        ([SPACE, "hydra.sweeper.directions=[maximize,minimize]"], "2 for 1 objectives", None),
        (
            [SPACE, f"hydra.sweeper.objectives=[{KEY},{OTHER}]", "hydra.sweeper.pruner=median"],
            "several",
            None,
        ),
        (["seed=1"], "nothing is searched", None),
        (["trainer.batch_size=interval(1.5,3.5)"], "trainer.batch_size", None),
        ([f"{LR}=tag(log,interval(0.0,1.0))"], LR, None),
        ([SPACE, "hydra.sweeper.storage=nonsense://x"], "hydra.sweeper.storage", None),
        ([SPACE, "hydra.sweeper.storage='nonsense://me:pa/ss@x'"], "hydra.sweeper.storage", None),
        ([SPACE], "study.log", '{"op_code": 0, "worker_id": "x", "stu'),
        ([SPACE], "study.log", '{"a": 1}\n'),
        ([SPACE], "study.db", "garbage" * 1000),
        ([SPACE], "study.db", FOREIGN),
    ],
)
def test_wrong_searches_and_damaged_studies_are_named_before_any_run(
    search: Search,
    fake: FakeRuns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
    study: str | None,
) -> None:
    """A damaged study is left unchanged."""
    path = tmp_path / "sweep" / named
    if study == FOREIGN:
        path.parent.mkdir()
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("create table studies (x int)")
    elif study is not None:
        path.parent.mkdir()
        path.write_text(study)
    storage = [f"hydra.sweeper.storage=journal:{path}"] if named == "study.log" else []
    assert search(*arguments, *storage) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "traceback" not in error.lower()
    if study is not None:
        assert str(path) in error
        assert "hydra.sweeper.storage" in error
        assert named == "study.db" or path.read_text() == study  # SQLite's own files may be touched
    assert not fake.rates


def test_what_cannot_be_composed_is_a_failed_trial(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    """The first choice is right, the other is of an option's wrong kind: no job is started for it."""
    assert search("trainer.schedule=choice(linear,sideways)", "hydra.sweeper.n_trials=5") == 0
    failed = [trial for trial in report(tmp_path)["trials"] if trial["state"] == "fail"]
    assert 0 < len(failed) < 5
    assert all("sideways" in trial["reason"] for trial in failed)
    assert len(fake.rates) == 5 - len(failed)


def test_a_study_and_plots_that_fail_end_no_run(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    broken = OSError("database is locked")
    with (
        patch.object(optuna.Trial, "report", side_effect=broken),
        patch("idiomtune.training.search.plot_search", side_effect=broken),
    ):
        assert search(SPACE, "hydra.sweeper.n_trials=2", "hydra.sweeper.pruner=median") == 0
    assert states(tmp_path) == ["complete", "complete"]
    assert len(fake.rates) == 2


def test_an_evaluation_without_a_score_is_passed_over() -> None:
    """It was NaN, and is left out of the scores: the trial goes on, and its next evaluation is its second."""
    study = optuna.create_study(direction="maximize")
    evaluated = reporter(study.ask(), [KEY])
    evaluated({})
    evaluated({KEY: 0.5})
    assert study.trials[0].intermediate_values == {2: 0.5}


@pytest.mark.parametrize("left", ['["finished"]', '{"status": "finished"}', "{"])
def test_a_run_that_left_nonsense_is_a_failed_trial(tmp_path: Path, left: str) -> None:
    (tmp_path / "run.json").write_text(left, encoding="utf-8")
    (tmp_path / "scores.json").write_text('{"scores": {"a": "high"}, "meta": {"monitor": ["a"]}}', "utf-8")
    outcome = outcome_of(tmp_path, None)
    assert outcome.state == optuna.trial.TrialState.FAIL
    assert outcome.reason


@pytest.mark.parametrize("name", config_names("sweep"))
def test_searches_that_come_along_fit_their_experiment(name: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [f"+sweep={name}", f"+experiment={name}"], return_hydra_config=True)
    options: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    plain = {str(k): v for k, v in options.items() if not str(k).startswith("_")}
    settings: SearchSettings = check(SearchSettings, plain, section="hydra.sweeper")
    parsed = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in settings.params.items()])
    values = example(split_overrides(parsed)[1])
    run: TrainSettings = check(TrainSettings, composed("config", f"+experiment={name}", *values))
    assert set(settings.objectives or []) <= set(run.score_keys(run.checkpoint_benchmarks))
