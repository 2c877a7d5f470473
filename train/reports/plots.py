"""Plots of a run, for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

from train.benchmarks import Distributions


def learning_curve(
    metrics: Sequence[dict[str, Any]],
    baseline: dict[str, float],
    keys: Sequence[str],
    best_step: int | None,
    title: str,
    path: Path,
) -> None:
    """Training loss by step, and below it the scores of each checkpoint from step 0 on.

    A dotted line marks the best checkpoint.

    Args:
        keys: scores to draw, as far as any checkpoint has them.
    """
    steps = [m for m in metrics if "loss" in m]
    scored = [m for m in metrics if "scores" in m]
    keys = [key for key in keys if any(key in m["scores"] for m in scored)]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8, 8), sharex=True, constrained_layout=True, height_ratios=[2, 3]
    )
    above.plot([m["step"] for m in steps], [m["loss"] for m in steps], color="0.5", linewidth=1)
    above.set_ylabel("training loss")
    above.set_title(title, loc="left")
    for key in keys:
        points = [(0, baseline.get(key)), *((m["step"], m["scores"].get(key)) for m in scored)]
        known = [(x, y) for x, y in points if y is not None]
        below.plot(*zip(*known, strict=True), marker="o", markersize=4, label=key)
    if best_step is not None:
        below.axvline(best_step, color="0.5", linestyle=":", label=f"best checkpoint (step {best_step})")
    below.set_xlabel("step (0 = untrained)")
    below.set_ylabel("score")
    below.grid(alpha=0.3)
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def violins(distributions: Distributions, path: Path) -> None:
    """A violin for each series of each group, with its median and quartiles."""
    names = list(dict.fromkeys(name for group in distributions.groups.values() for name in group))
    figure, axes = plt.subplots(figsize=(8, 5.5), constrained_layout=True)
    width = 0.8 / max(1, len(names))
    everything: list[float] = []
    for number, name in enumerate(names):
        filled = [
            (place + (number - (len(names) - 1) / 2) * width, list(group[name]))
            for place, group in enumerate(distributions.groups.values())
            if len(group.get(name, ())) > 0
        ]
        if not filled:
            continue
        places, values = [place for place, _ in filled], [value for _, value in filled]
        everything += [value for group in values for value in group]
        colour = f"C{number}"
        if all(len(set(v)) > 1 for v in values):  # a violin needs a spread
            drawn: dict[str, Any] = axes.violinplot(values, places, widths=width, showextrema=False)
            for body in drawn["bodies"]:
                body.set_color(colour)
        boxes = axes.boxplot(
            values,
            positions=places,
            widths=width / 5,
            showfliers=False,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": colour, "alpha": 0.7},
            medianprops={"color": "black"},
        )
        boxes["boxes"][0].set_label(name)
    if everything:  # a few far values would flatten all others
        low, high = quantiles(everything, n=1000)[0], quantiles(everything, n=1000)[-1]
        margin = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + margin)
    axes.set_xticks(range(len(distributions.groups)), list(distributions.groups))
    axes.set_ylabel(distributions.y_label)
    axes.set_title(distributions.title, loc="left")
    axes.grid(axis="y", alpha=0.3)
    if names and everything:
        axes.legend(fontsize="small")
    if distributions.caption:
        figure.supxlabel(fill(distributions.caption, 100), fontsize="small", ha="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
