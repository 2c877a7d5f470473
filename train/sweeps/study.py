"""The Optuna study of a search: its storage, its trials, and how the run of each has ended."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from train.config.search import SearchSettings
from train.errors import Pruned, UserError

log = logging.getLogger(__name__)

FOLDER = "folder"  # a trial's run folder, as an attribute of the trial
REASON = "reason"  # why a trial failed or was pruned
_QUESTION = "question"  # what the study searches, as an attribute of the study
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
_JOURNAL = "journal:"


class Outcome(NamedTuple):
    """How a trial's run ended.

    Attributes:
        values: one an objective, if it is complete.
        reason: why it is not.
    """

    state: TrialState
    values: list[float] | None = None
    reason: str = ""


class TrialReport:
    """Reports a run's scores after each evaluation to its trial; the run may then be given up.

    A study that cannot be reached is a warning: the run goes on.

    Args:
        keys: the scores whose mean is the objective.
    """

    def __init__(self, trial: optuna.Trial, keys: Sequence[str]) -> None:
        self._trial, self._keys = trial, keys
        self._num_evaluations = 0

    def __call__(self, scores: Mapping[str, float]) -> None:
        """Report one evaluation; one whose score is missing, because it is not finite, only counts.

        Raises:
            Pruned: if other trials were better after as many evaluations.
        """
        self._num_evaluations += 1
        if not all(key in scores for key in self._keys):
            return
        value = sum(scores[key] for key in self._keys) / len(self._keys)
        try:
            self._trial.report(value, self._num_evaluations)
            hopeless = self._trial.should_prune()
        except Exception as error:
            log.warning("the run goes on without its study: %s: %s", type(error).__name__, error)
            return
        if hopeless:
            raise Pruned(f"{value:.4f} after {self._num_evaluations} evaluations, where others were better")


def open_study(
    settings: SearchSettings, sweep_dir: Path, fixed: Sequence[str], space: Mapping[str, BaseDistribution]
) -> optuna.Study:
    """A new study, or the one of this name to go on with.

    Raises:
        UserError: if that one asks another question, or its storage cannot be read.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = _storage(settings.storage, sweep_dir)
        if next_folder(None, sweep_dir) and not storage.get_all_studies():
            raise ValueError(f"it has no study, but {sweep_dir} has runs of one")
        study = optuna.create_study(
            study_name=settings.study,
            storage=storage,
            directions=settings.known_directions,
            load_if_exists=True,
            pruner=_pruner(settings),
        )
        num_trials = len(study.get_trials(deepcopy=False))
    except Exception as error:  # of whatever database; a file that is cut off shows it in many ways
        where = settings.storage or str(sweep_dir / "study.db")
        hidden = "@" in where  # a password
        raise UserError(
            f"hydra.sweeper.storage: the study's storage cannot be opened{'' if hidden else f', {where}'}: "
            f"{type(error).__name__}{'' if hidden else f': {error}'}\n"
            "If it is damaged, empty or not Optuna's, restore it from a copy, or start another study in a "
            "new folder, hydra.sweep.dir=, with a storage of its own. The runs in this one stay as they are"
        ) from error
    # The sampler's seed moves on with the study: one that goes on must not draw the same trials again.
    study.sampler = _sampler(settings, settings.seed + num_trials)
    question: dict[str, Any] = {
        "objectives": settings.objectives or ["trainer.monitor"],
        "directions": settings.known_directions,
        "overrides": sorted(fixed),
        "space": {key: json.loads(distribution_to_json(one)) for key, one in sorted(space.items())},
    }
    known = study.user_attrs.get(_QUESTION)
    directions = [direction.name.lower() for direction in study.directions]
    if known is None and (num_trials or directions != settings.known_directions):
        raise UserError(
            f"the study {settings.study!r} was not started by such a search: it has {num_trials} trials, "
            f"whose parameters may be other ones, and goes by {', '.join(directions)}. Name a new one: "
            "hydra.sweeper.study=<name>"
        )
    if known is None:
        study.set_user_attr(_QUESTION, question)
    elif differing := [name for name in question if question[name] != known.get(name)]:
        lines = [f"  {name}: {question[name]}, but the study has {known.get(name)}" for name in differing]
        raise UserError(
            f"the study {settings.study!r} was started with other settings:\n" + "\n".join(lines) + "\n"
            "Go on with it by the same command, or name a new one: hydra.sweeper.study=<name>"
        )
    return study


def _storage(storage: str | None, sweep_dir: Path) -> optuna.storages.BaseStorage:
    """Where a study is; several processes may use it at once."""
    if storage is None or not storage.startswith(_JOURNAL):
        url = storage or f"sqlite:///{(sweep_dir / 'study.db').absolute()}"
        waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
        return RDBStorage(url, engine_kwargs=waiting)
    path = Path(storage.removeprefix(_JOURNAL))
    # Optuna writes into a journal before it reads it, and so into one that is cut off.
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if "op_code" not in json.loads(line) or not line.endswith("\n"):
            raise ValueError(f"line {number} is not a whole record of a journal")
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


def outcome_of(folder: Path, objectives: Sequence[str] | None) -> Outcome:
    """How the run in a folder ended, by what it left."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if record["status"] == "pruned":
            return Outcome(TrialState.PRUNED, reason=str(record.get("reason", "")))
        if record["status"] != "finished":
            return Outcome(
                TrialState.FAIL, reason=str(record.get("error") or f"the run is {record['status']}")
            )
        card = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        scores, monitor = card["scores"], card["meta"]["monitor"]
        if objectives is None:
            values = [sum(scores[key] for key in monitor) / len(monitor)]
        else:
            values = [scores[key] for key in objectives]
        if not all(math.isfinite(value) for value in values):
            return Outcome(TrialState.FAIL, reason=f"the objective is {values}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no whole run in {folder}: {type(error).__name__}: {error}"
        return Outcome(TrialState.FAIL, reason=reason)
    return Outcome(TrialState.COMPLETE, values)


def settle(study: optuna.Study, sweep_dir: Path, objectives: Sequence[str] | None, *, shared: bool) -> None:
    """Trials that a search in this folder left running when it was killed: they failed, and are run again.

    Args:
        shared: the storage may have trials of searches in other folders, which settle their own.
    """
    for trial in study.get_trials(states=[TrialState.RUNNING]):
        folder = trial.user_attrs.get(FOLDER)
        if shared and (folder is None or Path(folder).parent != sweep_dir.absolute()):
            continue
        outcome = outcome_of(Path(folder), objectives) if folder else Outcome(TrialState.FAIL)
        if outcome.state == TrialState.FAIL:
            study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
            log.info("trial %d was not finished: it is run again", trial.number)
        study.tell(trial.number, outcome.values, state=outcome.state)


def num_finished(study: optuna.Study) -> int:
    """Trials that need no further run."""
    return len(study.get_trials(deepcopy=False, states=_FINISHED))


def next_folder(study: optuna.Study | None, sweep_dir: Path) -> int:
    """A number that no folder in the search's has, nor any trial had: no two runs ever share one."""
    trials = study.get_trials(deepcopy=False) if study is not None else []
    taken = [Path(trial.user_attrs[FOLDER]).name for trial in trials if FOLDER in trial.user_attrs]
    names = [path.name for path in sweep_dir.iterdir()]
    return max((int(name) for name in [*taken, *names] if name.isdigit()), default=-1) + 1


def best_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The best one; with several objectives the Pareto front, by the first one's values."""
    if not study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        return []
    if len(study.directions) == 1:
        return [study.best_trial]
    return sorted(study.best_trials, key=lambda trial: trial.values[0])


def describe(params: Mapping[str, Any]) -> str:
    """A trial's values, short."""
    return " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())
