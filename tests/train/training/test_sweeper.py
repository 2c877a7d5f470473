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

import optuna
import pytest
from optuna.study import StudyDirection

from tests.tiny_runs import KEY, composed, resume
from train.__main__ import main
from train.config import TrainSettings
from train.config.compose import config_names
from train.errors import Pruned
from train.training.run_folder import RunFolder
from train.training.search import TrialReport, example, outcome_of, split_overrides

OTHER = "idiolink/val/sentence/r_precision"
LR = "trainer.learning_rate"
SPACE = f"{LR}=tag(log,interval(1e-5,1e-1))"
Search = Callable[..., int]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str]) -> Search:
    """`python -m train -m …` in this process, in the folder `sweep`; gives its exit status."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

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


class FakeRuns:
    """In place of `fine_tune`: what a run leaves, its scores a function of the learning rate."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.happens: dict[int, Callable[[], float]] = {}  # in the n-th run, from 0

    def __call__(
        self,
        settings: TrainSettings,
        config: dict[str, Any],  # noqa: ARG002
        experiment: str,  # noqa: ARG002
        run: RunFolder,
        *,
        record_start: Any = None,  # noqa: ARG002
        on_scores: Callable[[dict[str, float]], None] | None = None,
    ) -> float:
        folder = run.path
        folder.mkdir(parents=True, exist_ok=True)
        assert not (folder / "run.json").exists()  # no two jobs share a folder
        rate = settings.trainer.learning_rate
        self.rates.append(rate)
        score = 1 - abs(math.log10(rate) + 3) / 2  # best at 1e-3
        happens = self.happens.get(len(self.rates) - 1)
        status, record = "finished", {}
        try:
            if happens is not None:
                score = happens()
            for epoch in range(1, settings.trainer.max_epochs):
                if on_scores is not None:
                    on_scores({KEY: score * epoch / 10})
        except Pruned as pruned:
            status, record = "pruned", {"reason": str(pruned)}
            raise
        except Exception as error:
            status, record = "failed", {"error": str(error)}
            raise
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            (folder / "run.json").write_text(json.dumps({"status": status, **record}), encoding="utf-8")
        card = {"scores": {KEY: score, OTHER: 1 - rate}, "meta": {"monitor": settings.trainer.monitor}}
        (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")
        return score


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    runs = FakeRuns()
    monkeypatch.setattr("train.programs.fine_tune.fine_tune", runs)
    return runs


@pytest.fixture(autouse=True)
def _plots_where_they_are_tested(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest."""
    if request.function not in (
        test_real_runs_are_searched_pruned_and_shown,
        test_two_objectives_give_a_front,
    ):
        monkeypatch.setattr("train.training.search.plot_search", lambda *_: None)


def report(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "sweep" / "search.json").read_text(encoding="utf-8"))
    return found


def states(tmp_path: Path) -> list[str]:
    return [trial["state"] for trial in report(tmp_path)["trials"]]


def fail() -> float:
    raise RuntimeError("this one breaks")


def interrupt() -> float:
    raise KeyboardInterrupt


def test_real_runs_are_searched_pruned_and_shown(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three real runs of two epochs: the third, which learns nothing, is given up after its first."""
    rates = "choice(3e-3,1e-9)"
    # With this seed the sampler draws 3e-3, 3e-3, 1e-9.
    status = search(
        *(f"{LR}={rates}", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler=random"),
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
    plots = {path.name for path in (tmp_path / "sweep" / "plots").iterdir() if path.stat().st_size > 5000}
    assert plots == {"history.png", "parameters.png", "importance.png"}
    out = capsys.readouterr().out
    assert f"{LR}=0.003" in out
    assert out.splitlines()[-1] == str(tmp_path / "sweep")
    resume(given_up)  # it can be finished all the same
    assert json.loads((given_up / "run.json").read_text())["status"] == "finished"


def test_a_search_finds_what_is_best_and_goes_on_where_it_stood(
    search: Search, fake: FakeRuns, tmp_path: Path
) -> None:
    assert search(SPACE, "hydra.sweeper.n_trials=4", "hydra.sweeper.startup_trials=2") == 0
    assert len(set(fake.rates)) == 4
    best = max(fake.rates, key=lambda rate: -abs(math.log10(rate) + 3))
    (number,) = report(tmp_path)["best"]
    assert fake.rates[number] == best
    assert search(SPACE, "hydra.sweeper.n_trials=4", "hydra.sweeper.startup_trials=2") == 0
    assert len(fake.rates) == 4  # nothing is left to do
    assert search(SPACE, "hydra.sweeper.n_trials=5", "hydra.sweeper.startup_trials=2") == 0
    assert len(set(fake.rates)) == 5
    assert sorted(int(p.name) for p in (tmp_path / "sweep").iterdir() if p.name.isdigit()) == list(range(5))


def test_failed_and_nan_trials_end_neither_sweep_nor_study(
    search: Search, fake: FakeRuns, tmp_path: Path
) -> None:
    fake.happens = {0: fail, 2: lambda: math.nan}
    assert search(SPACE, "hydra.sweeper.n_trials=3") == 0
    assert states(tmp_path) == ["fail", "complete", "fail"]
    first, _, third = report(tmp_path)["trials"]
    assert "this one breaks" in first["reason"]
    assert "nan" in third["reason"]
    # Only the finished ones count: the two that failed are made up for.
    assert search(SPACE, "hydra.sweeper.n_trials=3") == 0
    assert states(tmp_path)[3:] == ["complete", "complete"]


def test_all_failed_is_a_failure(
    search: Search, fake: FakeRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.happens = {0: fail, 1: fail}
    assert search(SPACE, "hydra.sweeper.n_trials=2") != 0
    error = capsys.readouterr().err
    assert "all 2 trials failed" in error
    assert "this one breaks" in error
    assert states(tmp_path) == ["fail", "fail"]


def test_a_killed_sweep_runs_its_unfinished_trial_again(
    search: Search, fake: FakeRuns, tmp_path: Path
) -> None:
    kept = f"hydra.sweeper.storage=journal:{tmp_path / 'study.log'}"
    fake.happens = {1: interrupt}
    assert search(SPACE, "hydra.sweeper.n_trials=3", kept) == 130
    assert states(tmp_path) == ["complete", "running"]
    assert search(SPACE, "hydra.sweeper.n_trials=3", kept) == 0
    assert states(tmp_path) == ["complete", "fail", "complete", "complete"]
    assert fake.rates[2] == fake.rates[1]
    folders = [trial["folder"] for trial in report(tmp_path)["trials"]]
    assert len(set(folders)) == 4


def test_a_study_is_not_mixed_with_another(
    search: Search, fake: FakeRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(SPACE, "hydra.sweeper.n_trials=1") == 0
    assert search(SPACE, "hydra.sweeper.n_trials=2", "trainer.batch_size=24") == 2
    assert "overrides" in capsys.readouterr().err
    assert search(f"{LR}=interval(1e-5,1e-3)", "hydra.sweeper.n_trials=2") == 2
    assert "space" in capsys.readouterr().err
    assert len(fake.rates) == 1
    assert search(SPACE, "hydra.sweeper.n_trials=2", "device=auto", "trainer.log_every=5") == 0
    assert len(fake.rates) == 2


def test_two_objectives_give_a_front(
    search: Search,
    fake: FakeRuns,  # noqa: ARG001
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """KEY is best at 1e-3, OTHER the smaller the rate: above 1e-3 neither is."""
    assert search(SPACE, "hydra.sweeper.n_trials=4", f"hydra.sweeper.objectives=[{KEY},{OTHER}]") == 0
    found = report(tmp_path)
    assert found["objectives"] == {KEY: "maximize", OTHER: "maximize"}
    points = [(trial["values"][KEY], trial["values"][OTHER]) for trial in found["trials"]]
    expected = [
        n for n, a in enumerate(points) if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in points)
    ]
    assert found["best"] == expected
    plots = {path.name for path in (tmp_path / "sweep" / "plots").iterdir() if path.stat().st_size > 5000}
    each = {f"{name}_{number}.png" for name in ("history", "parameters", "importance") for number in (1, 2)}
    assert plots == {"pareto.png"} | each
    out = capsys.readouterr().out
    assert f"Pareto front of {len(expected)}" in out
    assert all(f"trial {number}: {LR}=" in out for number in expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([SPACE, "hydra.sweeper.objectives=[idiolink/val/sentence/ndgc]"], "ndcg@10"),
        ([SPACE, "hydra.sweeper.objectives=[epsilon/NC/rank_biserial]"], "no score 'epsilon/NC"),
        ([SPACE, "hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials: must be greater than 0"),
        ([SPACE, "hydra.sweeper.directions=[maximize,minimize]"], "2 for 1 objectives"),
        (
            [SPACE, f"hydra.sweeper.objectives=[{KEY},{OTHER}]", "hydra.sweeper.pruner=median"],
            "with several objectives",
        ),
        (["seed=1"], "nothing is searched"),
        (["trainer.batch_size=interval(1.5,3.5)"], "trainer.batch_size"),
        ([f"{LR}=tag(log,interval(0.0,1.0))"], LR),
        ([SPACE, "hydra.sweeper.storage=nonsense://x"], "hydra.sweeper.storage"),
    ],
)
def test_wrong_searches_are_explained_before_any_run(
    search: Search,
    fake: FakeRuns,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    assert search(*arguments) == 2
    assert expected in capsys.readouterr().err
    assert not fake.rates


def test_what_cannot_be_composed_is_a_failed_trial(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    """The first choice is right, the other is of an option's wrong kind: no job is started for it."""
    assert search("trainer.schedule=choice(linear,sideways)", "hydra.sweeper.n_trials=5") == 0
    failed = [trial for trial in report(tmp_path)["trials"] if trial["state"] == "fail"]
    assert 0 < len(failed) < 5
    assert all("sideways" in trial["reason"] for trial in failed)
    assert len(fake.rates) == 5 - len(failed)


def test_a_study_that_cannot_be_told_ends_no_run(
    search: Search, fake: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("database is locked")

    monkeypatch.setattr(optuna.Trial, "report", broken)
    assert search(SPACE, "hydra.sweeper.n_trials=2", "hydra.sweeper.pruner=median") == 0
    assert states(tmp_path) == ["complete", "complete"]
    assert len(fake.rates) == 2


FOREIGN = b"a database that is no study"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("study.log", b"hello\n"),
        ("study.log", b'{"op_code": 0, "worker_id": "x", "stu'),
        ("study.log", b'{"a": 1}\n'),
        ("study.log", b"[]\n"),
        ("study.db", b"garbage" * 1000),
        ("study.db", FOREIGN),
    ],
)
def test_a_damaged_study_is_named_and_left_unchanged(
    search: Search,
    fake: FakeRuns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
) -> None:
    path = tmp_path / "sweep" / name
    path.parent.mkdir()
    if content == FOREIGN:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("create table studies (x int)")
        content = path.read_bytes()
    path.write_bytes(content)
    assert search(SPACE, *([f"hydra.sweeper.storage=journal:{path}"] if name == "study.log" else [])) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert "hydra.sweeper.storage" in error
    assert "traceback" not in error.lower()
    assert name == "study.db" or path.read_bytes() == content  # SQLite's own files may be touched
    assert not fake.rates


@pytest.mark.parametrize(
    ("directions", "num_trials"), [([StudyDirection.MINIMIZE], 0), ([StudyDirection.MAXIMIZE], 1)]
)
def test_somebody_elses_study_is_not_gone_on_with(
    search: Search,
    fake: FakeRuns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    directions: list[StudyDirection],
    num_trials: int,
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    theirs = optuna.create_study(study_name="theirs", storage=url, directions=directions)
    for _ in range(num_trials):
        theirs.enqueue_trial({"dropout": 0.1})
    assert search(SPACE, "hydra.sweeper.study=theirs", f"hydra.sweeper.storage='{url}'") == 2
    assert "'theirs'" in capsys.readouterr().err
    assert not fake.rates
    assert len(optuna.load_study(study_name="theirs", storage=url).trials) == num_trials


def test_an_evaluation_without_a_score_is_passed_over(
    search: Search, fake: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was NaN, and is left out of the scores: the trial goes on, and its next evaluation is its second."""
    real, calls = TrialReport.__call__, 0

    def first_is_nan(self: TrialReport, scores: dict[str, float]) -> None:
        nonlocal calls
        calls += 1
        real(self, {} if calls == 1 else scores)

    monkeypatch.setattr(TrialReport, "__call__", first_is_nan)
    epochs = ("trainer.max_epochs=3", "hydra.sweeper.n_trials=1", "hydra.sweeper.pruner=median")
    assert search(SPACE, *epochs) == 0
    (trial,) = report(tmp_path)["trials"]
    assert calls == 2
    assert len(trial["evaluations"]) == 1
    assert trial["state"] == "complete"
    assert len(fake.rates) == 1


@pytest.mark.parametrize("left", ['["finished"]', '{"status": "finished"}', "{}", "null", "{"])
def test_a_run_that_left_nonsense_is_a_failed_trial(tmp_path: Path, left: str) -> None:
    (tmp_path / "run.json").write_text(left, encoding="utf-8")
    (tmp_path / "scores.json").write_text('{"scores": {"a": "high"}, "meta": {"monitor": ["a"]}}', "utf-8")
    outcome = outcome_of(tmp_path, None)
    assert outcome.state == optuna.trial.TrialState.FAIL
    assert outcome.reason


def test_plots_that_fail_lose_no_search(
    search: Search,
    fake: FakeRuns,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("train.training.search.plot_search", full)
    assert search(SPACE, "hydra.sweeper.n_trials=1") == 0
    assert states(tmp_path) == ["complete"]


@pytest.mark.parametrize("name", config_names("sweep"))
def test_searches_that_come_along_fit_their_experiment(name: str) -> None:
    from hydra import compose, initialize_config_dir
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    from train.config import check
    from train.config.compose import CONF
    from train.config.sections import SearchSettings

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [f"+sweep={name}", f"+experiment={name}"], return_hydra_config=True)
    options = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    assert isinstance(options, dict)
    plain = {str(k): v for k, v in options.items() if not str(k).startswith("_")}
    settings: SearchSettings = check(SearchSettings, plain, section="hydra.sweeper")
    _, space = split_overrides(
        OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in settings.params.items()])
    )
    values = example(space)
    run: TrainSettings = check(TrainSettings, composed("config", f"+experiment={name}", *values))
    assert set(settings.objectives or []) <= set(run.score_keys(run.checkpoint_benchmarks))


def test_a_second_worker_adds_to_the_study(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    """The same command in another folder, with the same storage: no trial is run twice."""
    storage = f"hydra.sweeper.storage=journal:{tmp_path / 'study.log'}"
    assert search(SPACE, "hydra.sweeper.n_trials=2", storage) == 0
    elsewhere = f"hydra.sweep.dir={tmp_path / 'other'}"
    assert search(SPACE, "hydra.sweeper.n_trials=3", storage, elsewhere) == 0
    assert len(set(fake.rates)) == 3
    assert [path.name for path in (tmp_path / "other").iterdir() if path.is_dir()] == ["2"]
