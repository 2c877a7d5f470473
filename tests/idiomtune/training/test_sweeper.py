"""Searches: what a study asks for is run, each trial in a folder of its own, whatever fails."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from optuna.trial import FrozenTrial, TrialState

from idiomtune.config import TrainSettings, validate
from idiomtune.config.sections import SearchSettings
from idiomtune.config.words import config_names
from idiomtune.errors import Pruned
from idiomtune.plugins.models import CONF
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.sweeper import score_reporter, split_overrides
from tests.programs import main_of
from tests.tiny_runs import composed, resume

LR = "trainer.learning_rate"
SPACE = f"{LR}=tag(log,interval(1e-5,1e-1))"
Search = Callable[..., int]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str]) -> Search:
    """`idiomtune train -m …` in this process, in the folder `sweep`; gives its exit status."""

    def run(*arguments: str) -> int:
        own = [option for option in options if not option.startswith(LR)]
        folder = f"hydra.sweep.dir={tmp_path / 'sweep'}"
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        return main_of("train")(["-m", "hydra/sweeper=optuna", folder, *own, *arguments])

    return run


def raised(error: BaseException) -> float:
    raise error


class FakeRuns:
    """In place of `train`: what a run leaves, its scores a function of the learning rate."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.happens: dict[int, Callable[[], float]] = {}  # in the n-th run, from 0

    def __call__(self, settings: TrainSettings, run: RunFolder) -> float:
        run.path.mkdir(parents=True, exist_ok=True)
        assert not (run.path / "run.json").exists()  # no two jobs share a folder
        rate = settings.trainer.learning_rate
        self.rates.append(rate)
        score = 1 - abs(math.log10(rate) + 3) / 2  # best at 1e-3
        record = {"status": "interrupted"}
        try:
            score = self.happens.get(len(self.rates) - 1, lambda: score)()
            for epoch in range(1, settings.trainer.max_epochs):
                report = score_reporter()
                assert report is not None
                report(score * epoch / 10)
            record = {"status": "finished"}
        except Pruned as pruned:
            record = {"status": "pruned", "reason": str(pruned)}
            raise
        except Exception as error:
            record = {"status": "failed", "error": str(error)}
            raise
        finally:
            (run.path / "run.json").write_text(json.dumps(record), encoding="utf-8")
        return score


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    runs = FakeRuns()
    monkeypatch.setattr("idiomtune.programs.train.train", runs)
    return runs


def trials(storage: str) -> list[FrozenTrial]:
    """Of a study, as Optuna itself reads it; by its file or folder."""
    url = storage if "://" in storage else f"sqlite:///{storage}/study.db"
    return optuna.load_study(study_name="search", storage=url).trials


def states(tmp_path: Path) -> list[str]:
    return [trial.state.name.lower() for trial in trials(f"{tmp_path}/sweep")]


@pytest.mark.usefixtures("undrawn")
def test_real_runs_are_searched_and_pruned(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three real runs of two epochs: the third, which learns nothing, is given up after its first."""
    # With this seed the sampler draws 3e-3, 3e-3, 1e-9.
    options = ["n_trials=3", "sampler=RandomSampler", "seed=6", "pruner=MedianPruner"]
    chosen = [f"hydra.sweeper.{option}" for option in options]
    chosen += ["+hydra.sweeper.pruner_options.n_startup_trials=2"]
    # Scored where even a tiny model learns in an epoch.
    key = "idiolink/train/sentence/ndcg@10"
    chosen += ["benchmark.idiolink.split=train", f"trainer.monitor={key}"]
    assert search(f"{LR}=choice(3e-3,1e-9)", *chosen) == 0
    assert states(tmp_path) == ["complete", "complete", "pruned"]
    given_up = tmp_path / "sweep" / "2"
    run = json.loads((given_up / "run.json").read_text())
    assert (run["status"], bool(run["reason"])) == ("pruned", True)
    assert (given_up / "best" / "model.safetensors").is_file()
    assert not (given_up / "scores.json").exists()
    card = json.loads((tmp_path / "sweep" / "0" / "scores.json").read_text())
    assert trials(f"{tmp_path}/sweep")[0].value == pytest.approx(card["scores"][key])
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
    command = [SPACE, storage, "+hydra.sweeper.sampler_options.n_startup_trials=2"]
    for num_trials, folder in ((4, "sweep"), (4, "sweep"), (5, "sweep"), (6, "other")):
        there = f"hydra.sweep.dir={tmp_path / folder}"
        assert search(*command, f"hydra.sweeper.n_trials={num_trials}", there) == 0
        assert len(set(fake.rates)) == len(fake.rates) == num_trials
    folders = [[p.name for p in (tmp_path / f).iterdir() if p.name.isdigit()] for f in ("sweep", "other")]
    assert (sorted(folders[0]), folders[1]) == (["0", "1", "2", "3", "4"], ["5"])


def test_what_fails_or_is_killed_is_made_up_for(
    search: Search, fake: FakeRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only finished trials count; all failed is a failure; a killed one is run again, in another folder."""
    fake.happens = dict.fromkeys((0, 1), lambda: raised(RuntimeError("this one breaks")))
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 2
    assert "this one breaks" in capsys.readouterr().err
    assert states(tmp_path) == ["fail", "fail"]
    assert "this one breaks" in trials(f"{tmp_path}/sweep")[0].user_attrs["reason"]
    fake.happens = {3: lambda: raised(KeyboardInterrupt())}
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 130
    assert states(tmp_path)[2:] == ["complete", "running"]
    assert search(SPACE, "hydra.sweeper.n_trials=2") == 0
    assert states(tmp_path)[2:] == ["complete", "fail", "complete"]
    assert fake.rates[4] == fake.rates[3]


def test_a_study_is_not_mixed_with_another(
    search: Search, fake: FakeRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(SPACE, "hydra.sweeper.n_trials=1") == 0
    assert search(SPACE, "hydra.sweeper.n_trials=2", "trainer.batch_size=24") == 2
    assert "overrides" in capsys.readouterr().err
    assert search(f"{LR}=interval(1e-5,1e-3)", "hydra.sweeper.n_trials=2") == 2
    assert "space" in capsys.readouterr().err
    assert search(SPACE, "hydra.sweeper.n_trials=2", "device=auto", "trainer.log_every=5") == 0
    assert len(fake.rates) == 2


def test_workers_share_a_study(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    """Meanwhile another one finishes two trials and starts a third: one is left, and that is left alone."""
    storage = f"sqlite:///{tmp_path}/study.db"

    def other() -> float:
        study = optuna.load_study(study_name="search", storage=storage)
        for _ in range(2):
            study.tell(study.ask(), 0.5)
        study.ask().set_user_attr("search", str(tmp_path / "other"))
        return 0.5

    fake.happens = {0: other}
    for n_trials, again in ((3, []), (4, [TrialState.COMPLETE])):
        assert search(SPACE, f"hydra.sweeper.n_trials={n_trials}", f"hydra.sweeper.storage='{storage}'") == 0
        complete = [TrialState.COMPLETE] * 3
        assert [trial.state for trial in trials(storage)] == [*complete, TrialState.RUNNING, *again]
    assert sorted(p.name for p in (tmp_path / "sweep").iterdir() if p.name.isdigit()) == ["0", "4"]


@pytest.mark.parametrize(
    ("arguments", "named", "study"),
    [
        ([SPACE, "trainer.monitor=idiolink/val/sentence/ndgc"], "trainer.monitor", None),
        ([SPACE, "hydra.sweeper.pruner=best"], "hydra.sweeper.pruner", None),
        ([SPACE, "+hydra.sweeper.sampler_options.n=1"], "hydra.sweeper.sampler", None),
        (["seed=1"], "nothing is searched", None),
        (["trainer.batch_size=interval(1.5,3.5)"], "trainer.batch_size", None),
        ([f"{LR}=tag(log,interval(0.0,1.0))"], LR, None),
        ([SPACE, "hydra.sweeper.storage='nonsense://me:pa/ss@x'"], "hydra.sweeper.storage", None),
        ([SPACE], "study.log", '{"a": 1}\n'),
        ([SPACE], "study.db", "garbage" * 1000),
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
    path = tmp_path / "sweep" / named
    if study is not None:
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
    assert not fake.rates


def test_what_cannot_be_composed_is_a_failed_trial(search: Search, fake: FakeRuns, tmp_path: Path) -> None:
    """The first choice is right, the other is of an option's wrong kind: no job is started for it."""
    assert search("trainer.schedule=choice(linear,sideways)", "hydra.sweeper.n_trials=5") == 0
    failed = [trial for trial in trials(f"{tmp_path}/sweep") if trial.state == TrialState.FAIL]
    assert 0 < len(failed) < 5
    assert all("sideways" in trial.user_attrs["reason"] for trial in failed)
    assert len(fake.rates) == 5 - len(failed)


@pytest.mark.parametrize("name", config_names("sweep"))
def test_searches_that_come_along_fit_their_experiment(name: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"+sweep={name}", f"+experiment={name}"], return_hydra_config=True)
    options: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    plain = {str(k): v for k, v in options.items() if not str(k).startswith("_")}
    settings: SearchSettings = validate(SearchSettings, plain, section="hydra.sweeper")
    parsed = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in settings.params.items()])
    drawn = optuna.create_study().ask(split_overrides(parsed)[1]).params
    values = [f"{option}={value}" for option, value in drawn.items()]
    validate(TrainSettings, composed("train", f"+experiment={name}", *values))
