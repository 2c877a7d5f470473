"""The Optuna study of a search: its storage, and what is known of its trials."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from train.config.search import SearchSettings
from train.errors import UserError

log = logging.getLogger(__name__)

FOLDER = "folder"  # a trial's run folder, as an attribute of the trial
REASON = "reason"  # why a trial failed or was pruned
_QUESTION = "question"  # what the study searches, as an attribute of the study
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Outcome:
    """How a trial's run ended.

    Attributes:
        values: one an objective, if it is complete.
        reason: why it is not.
    """

    state: TrialState
    values: list[float] | None = None
    reason: str = ""


def open_storage(storage: str | None, sweep_dir: Path) -> optuna.storages.BaseStorage:
    """Where a study is kept; one that several processes may use at once.

    Raises:
        UserError: if it cannot be opened.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if storage is not None and storage.startswith("journal:"):
            return JournalStorage(JournalFileBackend(storage.removeprefix("journal:")))
        url = storage or f"sqlite:///{(sweep_dir / 'study.db').absolute()}"
        waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
        return optuna.storages.RDBStorage(url, engine_kwargs=waiting)
    except Exception as error:  # of whatever database
        raise _unreadable(storage, sweep_dir, error) from None


def _check_journal(storage: str | None) -> None:
    """Optuna writes into a journal before it reads it: into one that is cut off, or no journal at all.

    Raises:
        ValueError: if a line is none of a journal's.
    """
    path = Path((storage or "").removeprefix("journal:"))
    if storage is None or not storage.startswith("journal:") or not path.is_file():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        record = json.loads(line)
        if not isinstance(record, dict) or "op_code" not in record or not line.endswith("\n"):
            raise ValueError(f"line {number} is no whole record of a journal")


def _unreadable(storage: str | None, sweep_dir: Path, error: Exception) -> UserError:
    where = storage or str(sweep_dir / "study.db")
    has_password = "@" in where
    return UserError(
        f"hydra.sweeper.storage: the study's storage cannot be opened{'' if has_password else f', {where}'}: "
        f"{type(error).__name__}{'' if has_password else f': {error}'}\n"
        "If it is damaged, empty or not Optuna's, restore it from a copy, or start another study in a new "
        "folder, hydra.sweep.dir=, with a storage of its own. The runs that are there stay as they are"
    )


def open_study(
    settings: SearchSettings, sweep_dir: Path, fixed: Sequence[str], space: Mapping[str, BaseDistribution]
) -> optuna.Study:
    """A new study, or the one of this name to go on with.

    Raises:
        UserError: if that one asks another question, or its storage is damaged.
    """
    try:
        _check_journal(settings.storage)
    except (OSError, ValueError) as error:
        raise _unreadable(settings.storage, sweep_dir, error) from error
    storage = open_storage(settings.storage, sweep_dir)
    try:
        if next_number(sweep_dir) and not storage.get_all_studies():
            raise ValueError(f"it has no study, but {sweep_dir} has runs of one")
        study = optuna.create_study(
            study_name=settings.study,
            storage=storage,
            directions=settings.known_directions,
            load_if_exists=True,
            pruner=make_pruner(settings),
        )
        num_trials = len(study.get_trials(deepcopy=False))
    # A file that is cut off, or somebody else's, is found out by the first reading, in many ways.
    except (StorageInternalError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise _unreadable(settings.storage, sweep_dir, error) from error
    # The sampler's seed moves on with the study: one that goes on must not draw the same trials again.
    study.sampler = _sampler(settings, num_trials)
    question: dict[str, Any] = {
        "objectives": settings.objectives or ["trainer.monitor"],
        "directions": settings.known_directions,
        "overrides": sorted(fixed),
        "space": {
            key: json.loads(distribution_to_json(distribution)) for key, distribution in sorted(space.items())
        },
    }
    _check_question(study, settings, question, num_trials)
    return study


def _check_question(
    study: optuna.Study, settings: SearchSettings, question: Mapping[str, Any], num_trials: int
) -> None:
    """Record what a new study searches; one to go on with must search the same.

    Raises:
        UserError: if it does not.
    """
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
    elif known != question:
        lines = [
            f"  {name}: {question[name]}, but the study has {known.get(name)}"
            for name in question
            if question[name] != known.get(name)
        ]
        raise UserError(
            f"the study {settings.study!r} was started with other settings:\n" + "\n".join(lines) + "\n"
            "Go on with it by the same command, or name a new one: hydra.sweeper.study=<name>"
        )


def _sampler(settings: SearchSettings, num_trials: int) -> optuna.samplers.BaseSampler:
    seed = settings.seed + num_trials
    if settings.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if settings.sampler == "nsgaii":
        return optuna.samplers.NSGAIISampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=settings.startup_trials)


def make_pruner(settings: SearchSettings) -> optuna.pruners.BasePruner:
    """Its steps are evaluations, which trials of any batch size have in common."""
    if settings.pruner == "median":
        return optuna.pruners.MedianPruner(
            n_startup_trials=settings.pruner_startup_trials, n_warmup_steps=settings.pruner_evaluations - 1
        )
    if settings.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=settings.pruner_evaluations)
    return optuna.pruners.NopPruner()


def outcome_of(folder: Path, objectives: Sequence[str] | None, error: Exception | None = None) -> Outcome:
    """How the run in a folder ended, by what it left; `error` is what the launcher says."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        status = record["status"]
        if status == "pruned":
            return Outcome(TrialState.PRUNED, reason=str(record.get("reason", "")))
        if status == "finished":
            card = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
            return _scored(card["scores"], objectives, card["meta"]["monitor"])
        reason = str(record.get("error") or f"the run is {status}")
    except (OSError, ValueError, KeyError, TypeError) as unreadable:
        reason = f"no whole run in {folder}: {type(unreadable).__name__}: {unreadable}"
    return Outcome(TrialState.FAIL, reason=str(error) if error is not None else reason)


def _scored(scores: dict[str, float], objectives: Sequence[str] | None, monitor: Sequence[str]) -> Outcome:
    missing = [key for key in objectives or monitor if key not in scores]
    if missing:
        return Outcome(TrialState.FAIL, reason=f"the run has no score {missing[0]!r}")
    if objectives is None:
        values = [sum(scores[key] for key in monitor) / len(monitor)]
    else:
        values = [scores[key] for key in objectives]
    if not all(math.isfinite(value) for value in values):
        return Outcome(TrialState.FAIL, reason=f"the objective is {values}")
    return Outcome(TrialState.COMPLETE, values)


def tell(study: optuna.Study, number: int, outcome: Outcome) -> None:
    """Record how a trial ended."""
    if outcome.reason:
        trial_of(study, number).set_user_attr(REASON, outcome.reason)
    study.tell(number, outcome.values, state=outcome.state)


def trial_of(study: optuna.Study, number: int) -> optuna.Trial:
    """A trial that runs, from whatever process."""
    storage = study._storage  # Optuna has no other way to it
    return optuna.Trial(study, storage.get_trial_id_from_study_id_trial_number(study._study_id, number))


def settle(study: optuna.Study, sweep_dir: Path, objectives: Sequence[str] | None, *, shared: bool) -> None:
    """Trials that a sweep in this folder left running when it was killed: they failed, and are run again.

    Args:
        shared: the storage may have trials of sweeps in other folders, which are theirs to settle.
    """
    for trial in study.get_trials(states=[TrialState.RUNNING]):
        folder = trial.user_attrs.get(FOLDER)
        if shared and (folder is None or Path(folder).parent != sweep_dir.absolute()):
            continue
        outcome = (
            outcome_of(Path(folder), objectives)
            if folder
            else Outcome(TrialState.FAIL, reason="never started")
        )
        if outcome.state == TrialState.FAIL:
            outcome = Outcome(TrialState.FAIL, reason=f"the sweep was ended: {outcome.reason}")
            study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
            log.info("trial %d was not finished: it is run again", trial.number)
        tell(study, trial.number, outcome)


def num_finished(study: optuna.Study) -> int:
    """Trials that need no further run."""
    return len(study.get_trials(deepcopy=False, states=FINISHED))


def next_number(sweep_dir: Path) -> int:
    """A number that no folder in the sweep's has."""
    return max((int(path.name) for path in sweep_dir.iterdir() if path.name.isdigit()), default=-1) + 1


def next_folder(study: optuna.Study, sweep_dir: Path) -> int:
    """A number that no folder in the sweep's has, nor any trial had: no two jobs ever share one."""
    taken = [
        int(Path(trial.user_attrs[FOLDER]).name)
        for trial in study.get_trials(deepcopy=False)
        if FOLDER in trial.user_attrs
    ]
    return max([next_number(sweep_dir) - 1, *taken]) + 1


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
