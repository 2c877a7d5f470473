"""Plots of a search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial


def history(
    trials: Sequence[FrozenTrial], names: Sequence[str], directions: Sequence[str], path: Path
) -> None:
    """Each objective by trial, and the best up to then."""
    figure, all_axes = _grid(len(names), 1)
    for place, (axes, name, direction) in enumerate(zip(all_axes, names, directions, strict=True)):
        values = [trial.values[place] for trial in trials]
        better = max if direction == "maximize" else min
        numbers = [trial.number for trial in trials]
        axes.plot(numbers, values, "o", color="0.5", markersize=4)
        axes.step(numbers, [better(values[: n + 1]) for n in range(len(values))], where="post")
        axes.set_ylabel(name, fontsize="small")
        axes.set_xlabel("trial")
    _save(figure, path)


def front(trials: Sequence[FrozenTrial], best: Collection[int], names: Sequence[str], path: Path) -> None:
    """Every two objectives against each other; the Pareto front numbered."""
    pairs = list(combinations(range(len(names)), 2))
    figure, all_axes = _grid(len(pairs), 1)
    for axes, (x, y) in zip(all_axes, pairs, strict=True):
        for colour, chosen in (("0.6", False), ("C0", True)):
            points = [trial for trial in trials if (trial.number in best) == chosen]
            label = "Pareto front" if chosen else "other trials"
            axes.scatter(
                [t.values[x] for t in points], [t.values[y] for t in points], color=colour, label=label
            )
        for trial in trials:
            if trial.number in best:
                axes.annotate(str(trial.number), (trial.values[x], trial.values[y]), fontsize="small")
        axes.set_xlabel(names[x], fontsize="small")
        axes.set_ylabel(names[y], fontsize="small")
        axes.legend(fontsize="small")
    _save(figure, path)


def parameters(trials: Sequence[FrozenTrial], names: Sequence[str], path: Path) -> None:
    """Each objective against each parameter."""
    keys = list(trials[0].params)
    figure, all_axes = _grid(len(names), len(keys))
    for place, axes in enumerate(all_axes):
        objective, column = divmod(place, len(keys))
        key = keys[column]
        points = [(t.params[key], t.values[objective]) for t in trials if key in t.params]
        distribution: Any = trials[0].distributions[key]
        if isinstance(distribution, CategoricalDistribution):
            points = [(str(value), score) for value, score in points]
        elif distribution.log:
            axes.set_xscale("log")
        axes.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4)
        axes.set_xlabel(key.lstrip("+"), fontsize="small")
        axes.set_ylabel(names[objective], fontsize="small")
    _save(figure, path)


def _grid(rows: int, columns: int) -> tuple[Any, list[Any]]:
    figure, axes = plt.subplots(
        rows, columns, figsize=(max(6, 3.2 * columns), 4 * rows), squeeze=False, constrained_layout=True
    )
    for each in axes.flat:
        each.grid(alpha=0.3)
    return figure, list(axes.flat)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
