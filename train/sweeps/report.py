"""What a search leaves for people: every trial in `search.json`, plots, the best in the terminal."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from train.config.search import SearchSettings
from train.io.files import write_json
from train.io.text import printable
from train.reports.tables import Table, print_table
from train.sweeps.plots import plot_search
from train.sweeps.space import as_overrides
from train.sweeps.study import FOLDER, REASON, best_trials, describe

log = logging.getLogger(__name__)

_MAX_ROWS = 20


def objective_names(settings: SearchSettings) -> list[str]:
    """What the values of a trial are."""
    return settings.objectives or ["trainer.monitor"]


def write(study: optuna.Study, settings: SearchSettings, sweep_dir: Path) -> None:
    """`search.json` and `plots/`, anew."""
    names, best = objective_names(settings), {trial.number for trial in best_trials(study)}
    trials = study.get_trials()
    write_json(
        sweep_dir / "search.json",
        {
            "study": settings.study,
            "objectives": dict(zip(names, settings.known_directions, strict=True)),
            "best": sorted(best),
            "trials": [_record(trial, names) for trial in trials],
        },
    )
    if not any(trial.state == TrialState.COMPLETE for trial in trials):
        return
    try:
        plot_search(study, names, sweep_dir / "plots")
    except (OSError, ValueError, RuntimeError) as error:  # no reason for the search to fail
        log.warning("the search's plots in %s could not be drawn: %s", sweep_dir / "plots", error)


def show(study: optuna.Study, settings: SearchSettings, sweep_dir: Path) -> None:
    """The trials, the best of them, or the Pareto front, with the command line's overrides that repeat it."""
    names, best = objective_names(settings), best_trials(study)
    if not best:
        return
    _show_trials(study, names)
    title = f"study {settings.study}: " + (
        "best trial" if len(names) == 1 else f"Pareto front of {len(best)}"
    )
    rows = [
        [str(trial.number), *(f"{value:.4f}" for value in trial.values), describe(trial.params)]
        for trial in best
    ]
    print_table(Table(title, ["trial", *names, "with"], rows, 2 + len(names)), width=120)
    for trial in best:
        print(f"trial {trial.number}: {shlex.join(as_overrides(trial.params))}")
    page = f"tables, intervals and a page: python -m train.report {shlex.quote(str(sweep_dir))}"
    print(printable(page))


def _show_trials(study: optuna.Study, names: list[str]) -> None:
    """A row a trial, the best first by the first objective; of many trials the best few."""
    directions = [direction.name for direction in study.directions]
    sign = 1 if directions[0] == "MINIMIZE" else -1
    trials = sorted(study.get_trials(), key=lambda t: (not t.values, sign * t.values[0] if t.values else 0.0))
    rows = [
        [str(t.number), t.state.name.lower(), describe(t.params), *(f"{v:.4f}" for v in t.values or [])]
        for t in trials[:_MAX_ROWS]
    ]
    rows = [row + [""] * (3 + len(names) - len(row)) for row in rows]
    more = f", the best {_MAX_ROWS}" if len(trials) > _MAX_ROWS else ""
    print_table(Table(f"{len(trials)} trials{more}", ["trial", "state", "with", *names], rows, 3), width=120)


def _record(trial: optuna.trial.FrozenTrial, names: list[str]) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "values": dict(zip(names, trial.values, strict=True)) if trial.values else None,
        "params": trial.params,
        "evaluations": list(trial.intermediate_values.values()),
        "folder": trial.user_attrs.get(FOLDER),
        "reason": trial.user_attrs.get(REASON),
    }
