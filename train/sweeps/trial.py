"""A run as one trial of a search: its scores are reported, and it may be given up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import optuna

from train.config import check
from train.config.search import SearchSettings
from train.errors import Pruned
from train.sweeps.study import make_pruner, open_storage, trial_of

log = logging.getLogger(__name__)


class TrialReport:
    """Tells a study each evaluation's score, from whatever process the run is in.

    A study that cannot be reached is a warning, once: the run goes on and is not pruned.

    Args:
        settings: of the search; `settings.trial` says which trial this is.
        sweep_dir: of the search.
        monitor: the scores whose mean is the objective where the search names none.
    """

    def __init__(self, settings: SearchSettings, sweep_dir: Path, monitor: list[str]) -> None:
        self._keys = settings.objectives or monitor
        self._trial: optuna.Trial | None = None
        assert settings.trial is not None
        try:
            study = optuna.load_study(
                study_name=settings.study,
                storage=open_storage(settings.storage, sweep_dir),
                pruner=make_pruner(settings),
            )
            self._trial = trial_of(study, settings.trial)
            self._num_evaluations = len(study.trials[settings.trial].intermediate_values)
        except Exception as error:
            self._give_up(error)

    def __call__(self, scores: dict[str, float]) -> None:
        """Report one evaluation.

        One whose score is missing, for it is not finite, counts, but is not reported: there is nothing to
        compare.

        Raises:
            Pruned: if others were better after as many.
        """
        if self._trial is None:
            return
        self._num_evaluations += 1
        if not all(key in scores for key in self._keys):
            return
        value = sum(scores[key] for key in self._keys) / len(self._keys)
        try:
            self._trial.report(value, self._num_evaluations)
            hopeless = self._trial.should_prune()
        except Exception as error:
            self._give_up(error)
            return
        if hopeless:
            raise Pruned(f"{value:.4f} after {self._num_evaluations} evaluations, where others were better")

    def _give_up(self, error: Exception) -> None:
        self._trial = None
        log.warning(
            "the study cannot be told of this run, which goes on: %s: %s", type(error).__name__, error
        )


def trial_report(search: dict[str, Any], sweep_dir: Path, monitor: list[str]) -> TrialReport | None:
    """What reports the scores of the run that is going on; None if nothing is pruned.

    Args:
        search: the node `hydra.sweeper` of its configuration.
    """
    options = {key: value for key, value in search.items() if not key.startswith("_")}
    settings: SearchSettings = check(SearchSettings, options, section="hydra.sweeper")
    return None if settings.pruner == "none" else TrialReport(settings, sweep_dir, monitor)
