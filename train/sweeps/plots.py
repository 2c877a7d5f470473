"""Optuna's plots of a search."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
import numpy as np
import optuna.visualization.matplotlib as draw
from matplotlib import pyplot as plt
from optuna import Study
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial


def plot_search(study: Study, names: Sequence[str], folder: Path) -> None:
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


def _plots(study: Study, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """File name and axes, one at a time."""
    several = len(names) > 1
    for place, name in enumerate(names):
        number = f"_{place + 1}" if several else ""
        values = partial(_value, place, 1) if several else None
        # Optuna measures how important a parameter is for a small target.
        sign = -1 if study.directions[place] == StudyDirection.MAXIMIZE else 1
        signed = partial(_value, place, sign) if several else None
        yield f"history{number}", draw.plot_optimization_history(study, target=values, target_name=name)
        yield f"parameters{number}", draw.plot_slice(study, target=values, target_name=name)
        yield f"importance{number}", draw.plot_param_importances(study, target=signed, target_name=name)
    for x, y in combinations(range(len(names)), 2):
        axes = draw.plot_pareto_front(
            study,
            targets=partial(_point, x, y),
            target_names=[names[x], names[y]],
        )
        for trial in study.best_trials:
            axes.annotate(str(trial.number), (trial.values[x], trial.values[y]), fontsize="small")
        yield "pareto" if len(names) == 2 else f"pareto_{x + 1}_{y + 1}", axes


def _value(place: int, sign: int, trial: FrozenTrial) -> float:
    return sign * float(trial.values[place])


def _point(x: int, y: int, trial: FrozenTrial) -> tuple[float, float]:
    return trial.values[x], trial.values[y]
