"""A search over hyperparameters: trials that an Optuna study is asked for, and told the outcome of.

Each trial is a run in a numbered folder. What the study knows of a run is what the run has left there.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, count
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")  # no screen needed
import numpy as np
import optuna
import optuna.visualization.matplotlib as draw
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from matplotlib import pyplot as plt
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from idiomtune.config import TrainSettings
from idiomtune.config.sections import SearchSettings
from idiomtune.errors import Pruned, UserError
from idiomtune.io.files import printable, write_json
from idiomtune.reports.tables import Table, print_table
from idiomtune.training.resume import may_change

log = logging.getLogger(__name__)

_FOLDER = "folder"  # a trial's run folder, as an attribute of the trial
_REASON = "reason"  # why a trial failed or was pruned
_QUESTION = "question"  # what the study searches, as an attribute of the study
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
_JOURNAL = "journal:"
_MAX_ROWS = 20

OnScores = Callable[[dict[str, float]], None]
SettingsOf = Callable[[Sequence[str]], TrainSettings]  # of a run with these overrides
Launch = Callable[[Sequence[str], int, OnScores | None], Exception | None]


# ------------------------------------------------------------------ the space


def split_overrides(
    overrides: Iterable[Override],
) -> tuple[list[str], dict[str, BaseDistribution]]:
    """What is fixed, as overrides, and what is searched; of two for one option the later counts.

    Raises:
        UserError: if nothing is searched, or a range is not one.
    """
    last = {override.get_key_element().lstrip("+"): override for override in overrides}
    fixed = [str(override.input_line) for override in last.values() if not override.is_sweep_override()]
    space = {o.get_key_element(): _distribution(o) for o in last.values() if o.is_sweep_override()}
    if not space:
        raise UserError(
            "nothing is searched: name options in hydra.sweeper.params (a file in conf/sweep), or on the "
            "command line as 'trainer.learning_rate=tag(log,interval(1e-5,1e-4))'"
        )
    return fixed, space


def _distribution(override: Override) -> BaseDistribution:
    """Hydra's sweep notation as Optuna's distribution."""
    value = override.value()
    try:
        if isinstance(value, IntervalSweep):
            start, end, log_scale = value.start, value.end, "log" in value.tags
            assert start is not None
            assert end is not None
            if isinstance(start, int) and isinstance(end, int):
                return IntDistribution(start, end, log=log_scale)
            return FloatDistribution(float(start), float(end), log=log_scale)
        if isinstance(value, RangeSweep):
            points = [p if isinstance(p, int) else float(p) for p in value.range()]
            step = abs(points[1] - points[0]) if len(points) > 1 else 1
            low, high = min(points), max(points)
            if all(isinstance(p, int) for p in points):
                return IntDistribution(int(low), int(high), step=int(step))
            return FloatDistribution(low, high, step=round(step, 12))
        return CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise UserError(f"{override.input_line}: {error}") from None


def example(space: Mapping[str, BaseDistribution]) -> list[str]:
    """Some value of each parameter as overrides, to check a configuration with."""
    return [
        f"{key}={one.choices[0] if isinstance(one, CategoricalDistribution) else one.low}"  # type: ignore[attr-defined]
        for key, one in space.items()
    ]


def _overrides(trial: optuna.Trial | FrozenTrial) -> list[str]:
    """A trial's values on Hydra's command line."""
    return [f"{key}={value}" for key, value in trial.params.items()]


def _describe(trial: optuna.Trial | FrozenTrial) -> str:
    """A trial's values, short."""
    return " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in trial.params.items())


# ------------------------------------------------------------------ the trials


class Search:
    """A study in a folder.

    Args:
        folder: of the search, locked while it runs.
        overrides: of the command line, fixed and searched ones.

    Attributes:
        fixed: the overrides that are the same in each trial.
        space: what is searched.
    """

    study: optuna.Study

    def __init__(self, settings: SearchSettings, folder: Path, overrides: Iterable[Override]) -> None:
        self._settings = settings
        self._folder = folder
        self._names = settings.objectives or ["trainer.monitor"]
        self.fixed, self.space = split_overrides(overrides)

    def open(self) -> None:
        """Open a new study, or the one of this name to go on with.

        Raises:
            UserError: if that one asks another question, or its storage cannot be read.
        """
        settings, folder = self._settings, self._folder
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            storage = _storage(settings.storage, folder)
            if _numbers(folder) and not storage.get_all_studies():
                raise ValueError(f"it has no study, but {folder} has runs of one")
            study = optuna.create_study(
                study_name=settings.study,
                storage=storage,
                directions=settings.known_directions,
                load_if_exists=True,
                pruner=_pruner(settings),
            )
            num_trials = len(study.get_trials(deepcopy=False))
        except Exception as error:  # of whatever database; a file that is cut off shows it in many ways
            where, what = settings.storage or str(folder / "study.db"), type(error).__name__
            what = what if "@" in where else f"{where}: {what}: {error}"  # a password may hold any sign
            raise UserError(
                f"the study's storage cannot be opened: {what}\n"
                "If it is damaged, empty or not Optuna's, restore it from a copy, or start another study in "
                "a new folder, hydra.sweep.dir=, with its own storage",
                option="hydra.sweeper.storage",
            ) from error
        # The sampler's seed moves on with the study: one that goes on must not draw the same trials again.
        study.sampler = _sampler(settings, settings.seed + num_trials)
        self.study = study
        self._check_question(num_trials)

    def _check_question(self, num_trials: int) -> None:
        """Record what is searched, which must stay the same."""
        study, settings = self.study, self._settings
        question: dict[str, Any] = {
            "objectives": self._names,
            "directions": settings.known_directions,
            "overrides": sorted(o for o in self.fixed if not may_change(o.partition("=")[0].lstrip("+~"))),
            "space": {key: json.loads(distribution_to_json(one)) for key, one in sorted(self.space.items())},
        }
        foreign = {"directions": [direction.name.lower() for direction in study.directions]}
        known = study.user_attrs.get(_QUESTION, foreign)  # somebody else's study has none
        if not num_trials and known == {"directions": settings.known_directions}:
            study.set_user_attr(_QUESTION, question)
        elif differing := [name for name in question if question[name] != known.get(name)]:
            lines = [f"  {name}: {question[name]}, but the study has {known.get(name)}" for name in differing]
            raise UserError(
                f"the study {settings.study!r} was started with other settings:\n" + "\n".join(lines) + "\n"
                "Go on with it by the same command, or name a new one: hydra.sweeper.study=<name>"
            )

    def run(self, settings_of: SettingsOf, launch: Launch) -> None:
        """Run the trials that are left, and write and show what they gave.

        Raises:
            UserError: if all of them failed.
        """
        study, settings = self.study, self._settings
        self._settle()
        before = self._num_finished()
        budget = max(settings.n_trials - before, 0)
        done = f"{before} of hydra.sweeper.n_trials={settings.n_trials} trials finished"
        log.info("study %s: %s, in %s", settings.study, done, self._folder)
        failures: list[str] = []
        try:
            for _ in range(budget):
                if self._num_finished() < settings.n_trials:  # other workers may have finished some
                    failures += self._try(study.ask(dict(self.space)), settings_of, launch)
        finally:
            if study.get_trials(deepcopy=False):
                self._write()
        self._show()
        if budget and self._num_finished() == before:
            raise UserError(f"all {len(failures)} trials failed. The first: {failures[0]}")
        if failures:
            log.warning("%d of %d trials failed", len(failures), budget)

    def _num_finished(self) -> int:
        return len(self.study.get_trials(deepcopy=False, states=_FINISHED))

    def _settle(self) -> None:
        """Trials that a killed search in this folder left running: they failed, and are run again.

        A shared storage may have trials of searches in other folders, which settle their own.
        """
        for trial in self.study.get_trials(states=[TrialState.RUNNING]):
            folder = Path(trial.user_attrs[_FOLDER]) if _FOLDER in trial.user_attrs else None
            is_ours = folder is not None and folder.parent == self._folder.absolute()
            if self._settings.storage is not None and not is_ours:
                continue
            outcome = outcome_of(folder, self._settings.objectives) if folder else Outcome(TrialState.FAIL)
            if outcome.state == TrialState.FAIL:
                self.study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
                log.info("trial %d was not finished: it is run again", trial.number)
            self.study.tell(trial.number, outcome.values, state=outcome.state)

    def _try(self, trial: optuna.Trial, settings_of: SettingsOf, launch: Launch) -> list[str]:
        """Run a trial, and tell the study how it ended; returns what went wrong."""
        overrides = [*self.fixed, *_overrides(trial)]
        try:
            run = settings_of(overrides)
        except UserError as error:
            outcome = Outcome(TrialState.FAIL, reason=str(error))
        else:
            # No two runs share a folder: another study may have some here.
            number = max([trial.number, *(taken + 1 for taken in _numbers(self._folder))])
            folder = (self._folder / str(number)).absolute()
            trial.set_user_attr(_FOLDER, str(folder))
            keys = self._settings.objectives or run.trainer.monitor
            report = None if self._settings.pruner == "none" else reporter(trial, keys)
            raised = launch([*overrides, f"hydra.sweep.subdir='{number}'"], number, report)
            outcome = outcome_of(folder, self._settings.objectives)
            if outcome.state == TrialState.FAIL and raised is not None:
                outcome = outcome._replace(reason=str(raised))
        if outcome.reason:
            trial.set_user_attr(_REASON, outcome.reason)
        self.study.tell(trial, outcome.values, state=outcome.state)
        what = f"trial {trial.number} ({_describe(trial)})"
        if outcome.state == TrialState.FAIL:
            log.warning("%s failed: %s", what, outcome.reason)
            return [f"{what}: {outcome.reason}"]
        values = ", ".join(f"{v:.4f}" for v in outcome.values or []) or outcome.reason
        log.info("%s %s: %s", what, outcome.state.name.lower(), values)
        return []

    # -------------------------------------------------------------- what it leaves for people

    def _best(self) -> list[FrozenTrial]:
        """The best one; with several objectives the Pareto front, by the first one's values."""
        if not self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
            return []
        if len(self._names) == 1:
            return [self.study.best_trial]
        return sorted(self.study.best_trials, key=lambda trial: trial.values[0])

    def _write(self) -> None:
        """Write `search.json` and `plots/`."""
        trials, names = self.study.get_trials(), self._names
        records = [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "values": dict(zip(names, trial.values, strict=True)) if trial.values else None,
                "params": trial.params,
                "evaluations": list(trial.intermediate_values.values()),
                "folder": trial.user_attrs.get(_FOLDER),
                "reason": trial.user_attrs.get(_REASON),
            }
            for trial in trials
        ]
        best = sorted(trial.number for trial in self._best())
        about = {"study": self._settings.study, "best": best, "trials": records}
        directions = dict(zip(names, self._settings.known_directions, strict=True))
        write_json(self._folder / "search.json", about | {"objectives": directions})
        if best:
            try:
                plot_search(self.study, names, self._folder / "plots")
            except (OSError, ValueError, RuntimeError) as error:  # no reason for the search to fail
                log.warning("the search's plots could not be drawn: %s", error)

    def _show(self) -> None:
        """Print the trials, the best first by the first objective, and how the best of them are repeated."""
        names, best = self._names, self._best()
        if not best:
            return
        sign = 1 if self.study.directions[0] == StudyDirection.MINIMIZE else -1
        trials = self.study.get_trials()
        trials.sort(key=lambda t: (not t.values, sign * t.values[0] if t.values else 0.0))
        rows = []
        for t in trials[:_MAX_ROWS]:
            values = [f"{v:.4f}" for v in t.values] if t.values else [""] * len(names)
            rows.append([str(t.number), t.state.name.lower(), _describe(t), *values])
        more = f", the best {_MAX_ROWS}" if len(trials) > _MAX_ROWS else ""
        title = f"study {self._settings.study}: {len(trials)} trials{more}"
        print_table(Table(title, ["trial", "state", "with", *names], rows, 3), width=120)
        print("the best:" if len(names) == 1 else f"Pareto front of {len(best)}:")
        for trial in best:
            print(f"trial {trial.number}: {shlex.join(_overrides(trial))}")
        page = f"tables, intervals and a page: idiomtune report {shlex.quote(str(self._folder))}"
        print(printable(page))


def _numbers(folder: Path) -> list[int]:
    """Those of the run folders in a search's."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


class Outcome(NamedTuple):
    """How a trial's run ended.

    Attributes:
        values: one an objective, if it is complete.
        reason: why it is not.
    """

    state: TrialState
    values: list[float] | None = None
    reason: str = ""


def outcome_of(folder: Path, objectives: Sequence[str] | None) -> Outcome:
    """How the run in a folder ended, by what it left."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if record["status"] == "pruned":
            return Outcome(TrialState.PRUNED, reason=str(record.get("reason", "")))
        if record["status"] != "finished":
            reason = str(record.get("error") or f"the run is {record['status']}")
            return Outcome(TrialState.FAIL, reason=reason)
        card = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        values = [card["scores"][key] for key in objectives or card["meta"]["monitor"]]
        values = values if objectives else [fmean(values)]
        if not all(math.isfinite(value) for value in values):
            return Outcome(TrialState.FAIL, reason=f"the objective is {values}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Outcome(
            TrialState.FAIL, reason=f"no complete run in {folder}: {type(error).__name__}: {error}"
        )
    return Outcome(TrialState.COMPLETE, values)


def reporter(trial: optuna.Trial, keys: Sequence[str]) -> OnScores:
    """Reports a run's scores after each evaluation to its trial; the run may then be given up.

    A study that cannot be reached is a warning: the run goes on. An evaluation whose score is missing,
    because it is not finite, only counts.

    Args:
        keys: the scores whose mean is the objective.

    Returns:
        What raises :class:`~idiomtune.errors.Pruned` if other trials were better after as many evaluations.
    """
    evaluations = count(1)

    def report(scores: Mapping[str, float]) -> None:
        number = next(evaluations)
        if not all(key in scores for key in keys):
            return
        value = fmean(scores[key] for key in keys)
        try:
            trial.report(value, number)
            hopeless = trial.should_prune()
        except Exception as error:
            log.warning("the run goes on without its study: %s: %s", type(error).__name__, error)
            return
        if hopeless:
            raise Pruned(f"{value:.4f} after {number} evaluations, where others were better")

    return report


# ------------------------------------------------------------------ Optuna's parts


def _storage(storage: str | None, folder: Path) -> optuna.storages.BaseStorage:
    """Where a study is; several processes may use it at once."""
    if storage is None or not storage.startswith(_JOURNAL):
        url = storage or f"sqlite:///{(folder / 'study.db').absolute()}"
        waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
        return RDBStorage(url, engine_kwargs=waiting)
    path = Path(storage.removeprefix(_JOURNAL))
    # Optuna writes into a journal before it reads it, and so into one that is cut off.
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if "op_code" not in json.loads(line) or not line.endswith("\n"):
            raise ValueError(f"line {number} is not a complete record of a journal")
    return JournalStorage(JournalFileBackend(str(path)))


def _sampler(settings: SearchSettings, seed: int) -> optuna.samplers.BaseSampler:
    if settings.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if settings.sampler == "nsgaii":
        return optuna.samplers.NSGAIISampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=settings.startup_trials)


def _pruner(settings: SearchSettings) -> optuna.pruners.BasePruner:
    """Its steps are evaluations, which trials of any batch size have in common."""
    if settings.pruner == "median":
        return optuna.pruners.MedianPruner(
            n_startup_trials=settings.pruner_startup_trials, n_warmup_steps=settings.pruner_evaluations - 1
        )
    if settings.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=settings.pruner_evaluations)
    return optuna.pruners.NopPruner()


# ------------------------------------------------------------------ plots


def plot_search(study: optuna.Study, names: Sequence[str], folder: Path) -> None:
    """PNG files: each objective by trial and by parameter, the parameters' importance, the Pareto front.

    Args:
        study: with at least one complete trial.
        names: of its objectives; of several, each has files of its own, numbered from 1.
    """
    folder.mkdir(exist_ok=True)
    # Optuna sets a style for the whole process, and warns of its plots as experimental.
    with plt.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, axes in _plots(study, names):
            figure = np.ravel(axes)[0].figure
            figure.savefig(folder / f"{name}.png", dpi=120, bbox_inches="tight")
            plt.close(figure)


def _value(place: int, sign: int = 1) -> Callable[[FrozenTrial], float]:
    return lambda trial: sign * float(trial.values[place])


def _pair(x: int, y: int) -> Callable[[FrozenTrial], Sequence[float]]:
    return lambda trial: (trial.values[x], trial.values[y])


def _plots(study: optuna.Study, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """File name and axes, one at a time."""
    several = len(names) > 1
    for place, name in enumerate(names):
        sign = -1 if study.directions[place] == StudyDirection.MAXIMIZE else 1
        number, value = (f"_{place + 1}", _value(place)) if several else ("", None)
        # Optuna measures how important a parameter is for a small target.
        small = _value(place, sign) if several else None
        yield f"history{number}", draw.plot_optimization_history(study, target=value, target_name=name)
        yield f"parameters{number}", draw.plot_slice(study, target=value, target_name=name)
        yield f"importance{number}", draw.plot_param_importances(study, target=small, target_name=name)
    for x, y in combinations(range(len(names)), 2):
        axes = draw.plot_pareto_front(study, targets=_pair(x, y), target_names=[names[x], names[y]])
        for trial in study.best_trials:
            axes.annotate(str(trial.number), (trial.values[x], trial.values[y]), fontsize="small")
        yield "pareto" if len(names) == 2 else f"pareto_{x + 1}_{y + 1}", axes
