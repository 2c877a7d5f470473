"""Plots of a run, for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from train.benchmarks import Distributions
from train.declarations.figures import Gain, Gains, Maps, Panel
from train.reports.statistics import mean_interval

# Colours that people with any colour vision tell apart (Okabe and Ito 2008); a shape each says the same.
_KINDS = {
    "literal": ("#d55e00", "s"),
    "idiomatic": ("#0072b2", "o"),
    "simplification": ("#009e73", "^"),
    "sense": ("#cc79a7", "D"),
}
_OTHER_KINDS = (("#e69f00", "v"), ("#56b4e9", "P"), ("#000000", "X"), ("#7f7f7f", "<"))
_SIDES = {"untrained": ("0.75", "///"), "trained": ("#0072b2", "")}  # colour and hatch
_PANEL_CHARACTERS = 32  # a line of a heading: a longer one would push panels apart
_NARROW, _FINE = 5.0, 160  # inches and dots an inch: print that is read on a phone too


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
    _save(figure, path)


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
    _save(figure, path)


def gains_chart(gains: Gains, path: Path) -> None:
    """Bars of means before and after training with 95% intervals, and the interval of each difference."""
    counts = [len(rows) for rows in gains.groups.values()]
    figure, column = plt.subplots(
        len(counts),
        1,
        figsize=(_NARROW, 1.8 + 0.3 * len(counts) + 0.62 * sum(counts)),
        sharex=True,
        squeeze=False,
        height_ratios=counts,
        constrained_layout=True,
    )
    for axes, (heading, rows) in zip(column[:, 0], gains.groups.items(), strict=True):
        for place, gain in enumerate(rows):
            _draw_gain(axes, place, gain)
        axes.set_yticks(range(len(rows)), [f"{row.name}\n{len(row.after)} queries" for row in rows])
        axes.tick_params(labelsize="small")
        axes.invert_yaxis()
        axes.set_title(heading, loc="left", fontsize="medium")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    column[0, 0].text(1.02, 1.02, "difference", transform=column[0, 0].transAxes, fontsize="small")
    column[-1, 0].set_xlabel(gains.label, fontsize="small")
    figure.suptitle(gains.title, x=0.02, ha="left", fontsize="large")
    handles, labels = column[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=2, fontsize="small")
    _save(figure, path, dpi=_FINE)


def _draw_gain(axes: Any, place: int, gain: Gain) -> None:
    for shift, (side, (colour, hatch)), values in zip(
        (-0.2, 0.2), _SIDES.items(), (gain.before, gain.after), strict=True
    ):
        mean, (low, high) = fmean(values), mean_interval(values)
        axes.barh(
            place + shift,
            mean,
            0.38,
            xerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
            color=colour,
            hatch=hatch,
            edgecolor="0.3",
            linewidth=0.5,
            error_kw={"elinewidth": 1, "capsize": 2},
            label=f"{side}, 95% interval by query",
        )
    changes = [after - before for before, after in zip(gain.before, gain.after, strict=True)]
    low, high = mean_interval(changes)
    axes.text(
        1.02,
        place,
        f"{fmean(changes):+.3f}\n[{low:+.3f}, {high:+.3f}]",
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize="small",
    )


def sentence_maps(maps: Maps, path: Path) -> None:
    """Small multiples: each group of texts by the untrained model and, to the right, by the trained one."""
    caption = fill(maps.caption, 72)
    heights = 0.9 + 0.16 * len(caption.splitlines()), 2.2 * len(maps.rows)
    figure = plt.figure(figsize=(_NARROW, sum(heights)), constrained_layout=True)
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    head, body = parts
    grid = body.subplots(len(maps.rows), 2, squeeze=False)
    others = (kind for kind in maps.kinds if kind not in _KINDS)
    looks = _KINDS | dict(zip(others, _OTHER_KINDS, strict=False))
    for axes, panel in zip(grid.flat, (panel for row in maps.rows for panel in row), strict=True):
        _draw_panel(axes, panel, looks)
    handles = [
        Line2D([], [], color=looks[kind][0], marker=looks[kind][1], linestyle="", label=kind)
        for kind in maps.kinds
        if kind in looks
    ]
    head.text(0.02, 1 - 0.1 / heights[0], maps.title, va="top", fontsize="large")
    head.text(0.02, 1 - 0.42 / heights[0], caption, va="top", fontsize="small", linespacing=1.3)
    head.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize="small")
    _save(figure, path, dpi=_FINE)


def _draw_panel(axes: Any, panel: Panel, looks: dict[str, tuple[str, str]]) -> None:
    for kind, points in panel.points.items():
        colour, marker = looks.get(kind, ("0.5", "."))
        axes.scatter(*zip(*points, strict=True), s=18, color=colour, marker=marker, alpha=0.75, linewidths=0)
    heading = "\n".join(fill(line, _PANEL_CHARACTERS) for line in panel.heading.splitlines())
    axes.set_title(heading, loc="left", fontsize="small", parse_math=False)
    axes.set_xlabel(panel.axes[0], fontsize="small")
    axes.set_ylabel(panel.axes[1], fontsize="small")
    axes.tick_params(labelsize="x-small")
    axes.locator_params(nbins=4)
    axes.set_aspect("equal", "datalim")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def _save(figure: Any, path: Path, *, dpi: int = 120) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
