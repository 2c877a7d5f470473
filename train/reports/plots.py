"""Charts: a run's plots as PNG files, and the page's learning curves as SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from train.benchmarks import Distributions
from train.declarations.figures import Gain, Gains, Maps, Panel
from train.reports.statistics import mean_interval

# Of lines: legible on light and on dark; then the dashes change.
_LINES = ("#3b84d6", "#e0702a", "#2f9e5f", "#a25fd6", "#d1498a", "#1e9bab", "#a8871a", "#7c8894")
_DASHES: Sequence[tuple[int, ...]] = ((), (6, 3), (2, 3))
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
_STYLE: dict[Any, Any] = {
    **{"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3, "figure.constrained_layout.use": True},
    **{"axes.titlelocation": "left", "axes.titlesize": "medium", "axes.labelsize": "small"},
    **{"xtick.labelsize": "small", "ytick.labelsize": "small", "legend.fontsize": "small"},
    "text.parse_math": False,  # texts are no formulas, however they look
}
_ON_THE_PAGE: dict[Any, Any] = {
    **{"svg.fonttype": "none", "svg.hashsalt": "page", "font.family": "sans-serif", "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "savefig.transparent": True},
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#808992"
    ),
}


@dataclass(frozen=True)
class Line:
    """Points of a line; lines of one `number` look the same."""

    label: str
    points: Sequence[tuple[float, float]]
    number: int


@dataclass(frozen=True)
class Curves:
    """Lines over common axes.

    Attributes:
        from_untrained: whether each line begins at step 0; then its points are marked.
    """

    heading: str
    lines: Sequence[Line]
    y_label: str
    from_untrained: bool = True


def look(number: int) -> tuple[str, tuple[int, ...]]:
    """Colour and dashes of the line number `number`."""
    return _LINES[number % len(_LINES)], _DASHES[number // len(_LINES) % len(_DASHES)]


def curves_svg(curves: Sequence[Curves]) -> str:
    """Charts one above the other, as a data URI; transparent, for a light or a dark page."""
    file = io.BytesIO()
    with plt.rc_context(_STYLE | _ON_THE_PAGE):
        figure = plt.figure(figsize=(5, 3 * len(curves)))
        _draw_curves(figure, curves, None)
        figure.savefig(file, format="svg", metadata={"Date": None})
        plt.close(figure)
    return data_uri(file.getvalue(), "image/svg+xml")


def data_uri(content: bytes, kind: str) -> str:
    """A file's content to stand in a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


@contextmanager
def _saved(path: Path, width: float, height: float, *, dpi: int = 120) -> Iterator[Any]:
    """A figure to draw on, saved at the end; its size is in inches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(_STYLE):
        figure = plt.figure(figsize=(width, height))
        yield figure
        figure.savefig(path, dpi=dpi)
        plt.close(figure)


def learning_curve(curves: Sequence[Curves], best_step: int | None, title: str, path: Path) -> None:
    """Charts one above the other; a dotted line marks the best checkpoint."""
    with _saved(path, 8, 4 * len(curves)) as figure:
        figure.suptitle(title, x=0.02, ha="left")
        _draw_curves(figure, curves, best_step)


def _draw_curves(figure: Any, curves: Sequence[Curves], best_step: int | None) -> None:
    for axes, chart in zip(figure.subplots(len(curves), 1, squeeze=False)[:, 0], curves, strict=True):
        looks = {}
        for line in chart.lines:
            colour, dashes = look(line.number)
            style = {"color": colour, "linestyle": (0, dashes) if dashes else "-", "markersize": 4}
            marker = "o" if chart.from_untrained else ""
            (looks[line.label],) = axes.plot(*np.transpose(line.points), marker=marker, **style)
        if best_step is not None and chart.from_untrained:
            label = f"best checkpoint (step {best_step})"
            looks[label] = axes.axvline(best_step, color="0.5", linestyle=":")
        axes.set(title=chart.heading, ylabel=chart.y_label)
        axes.set_xlabel("step (0 = untrained)" if chart.from_untrained else "step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(looks) > 1 or chart.from_untrained:
            axes.legend(looks.values(), looks, loc="upper left", bbox_to_anchor=(0, -0.2))


def violins(distributions: Distributions, path: Path) -> None:
    """A violin for each series of each group, with its median and quartiles."""
    groups = distributions.groups
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(1, len(names))
    everything: list[float] = []
    with _saved(path, 8, 5.5) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            shift = (number - (len(names) - 1) / 2) * width
            drawn = {n + shift: list(g[name]) for n, g in enumerate(groups.values()) if len(g.get(name, ()))}
            if drawn:
                quartiles = [[0.25, 0.5, 0.75]] * len(drawn)
                violin = axes.violinplot(
                    list(drawn.values()), list(drawn), widths=width, showextrema=False, quantiles=quartiles
                )
                violin["bodies"][0].set_label(name)
                everything += [value for values in drawn.values() for value in values]
        if everything:  # a few far values would flatten all others
            low, high = np.quantile(everything, (0.001, 0.999))
            margin = 0.05 * (high - low) or 1.0
            axes.set_ylim(low - margin, high + margin)
            axes.legend()
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylabel=distributions.y_label, title=distributions.title)
        axes.grid(visible=False, axis="x")
        figure.supxlabel(fill(distributions.caption, 100), fontsize="small", ha="center")


def gains_chart(gains: Gains, path: Path) -> None:
    """Bars of means before and after training with 95% intervals, and the interval of each difference."""
    counts = [len(rows) for rows in gains.groups.values()]
    height = 1.8 + 0.3 * len(counts) + 0.62 * sum(counts)
    with _saved(path, _NARROW, height, dpi=_FINE) as figure:
        column = figure.subplots(len(counts), 1, sharex=True, squeeze=False, height_ratios=counts)[:, 0]
        for axes, (heading, rows) in zip(column, gains.groups.items(), strict=True):
            for place, gain in enumerate(rows):
                _draw_gain(axes, place, gain)
            axes.set_yticks(range(len(rows)), [f"{row.name}\n{len(row.after)} queries" for row in rows])
            axes.invert_yaxis()
            axes.set_title(heading)
            axes.grid(visible=False, axis="y")
        column[0].text(1.02, 1.02, "difference", transform=column[0].transAxes, fontsize="small")
        column[-1].set_xlabel(gains.label)
        figure.suptitle(gains.title, x=0.02, ha="left", fontsize="large")
        handles = column[0].containers[: 2 * len(_SIDES) : 2]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)


def _draw_gain(axes: Any, place: int, gain: Gain) -> None:
    sides = zip((-0.2, 0.2), _SIDES.items(), (gain.before, gain.after), strict=True)
    for shift, (side, (colour, hatch)), values in sides:
        mean, (low, high) = float(np.mean(values)), mean_interval(values)
        axes.barh(
            *(place + shift, mean, 0.38),
            xerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
            error_kw={"elinewidth": 1, "capsize": 2},
            **{"color": colour, "hatch": hatch, "edgecolor": "0.3", "linewidth": 0.5},
            label=f"{side}, 95% interval by query",
        )
    changes = np.subtract(gain.after, gain.before)
    low, high = mean_interval(changes)
    text = f"{changes.mean():+.3f}\n[{low:+.3f}, {high:+.3f}]"
    axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize="small")


def sentence_maps(maps: Maps, path: Path) -> None:
    """Small multiples: each group of texts by the untrained model and, to the right, by the trained one."""
    caption = fill(maps.caption, 72)
    heights = 0.9 + 0.16 * len(caption.splitlines()), 2.2 * len(maps.rows)
    others = (kind for kind in maps.kinds if kind not in _KINDS)
    looks = _KINDS | dict(zip(others, _OTHER_KINDS, strict=False))
    with _saved(path, _NARROW, sum(heights), dpi=_FINE) as figure:
        head, body = figure.subfigures(2, 1, height_ratios=heights)
        panels = [panel for row in maps.rows for panel in row]
        for axes, panel in zip(body.subplots(len(maps.rows), 2, squeeze=False).flat, panels, strict=True):
            _draw_panel(axes, panel, looks)
        handles = [
            Line2D([], [], color=looks[kind][0], marker=looks[kind][1], linestyle="", label=kind)
            for kind in maps.kinds
            if kind in looks
        ]
        head.text(0.02, 1 - 0.1 / heights[0], maps.title, va="top", fontsize="large")
        head.text(0.02, 1 - 0.42 / heights[0], caption, va="top", fontsize="small", linespacing=1.3)
        head.legend(handles=handles, loc="lower center", ncols=len(handles))


def _draw_panel(axes: Any, panel: Panel, looks: Mapping[str, tuple[str, str]]) -> None:
    for kind, points in panel.points.items():
        colour, marker = looks.get(kind, ("0.5", "."))
        axes.scatter(*zip(*points, strict=True), s=18, color=colour, marker=marker, alpha=0.75, linewidths=0)
    heading = "\n".join(fill(line, _PANEL_CHARACTERS) for line in panel.heading.splitlines())
    axes.set_title(heading, fontsize="small")
    axes.set(xlabel=panel.axes[0], ylabel=panel.axes[1])
    axes.tick_params(labelsize="x-small")
    axes.locator_params(nbins=4)
    axes.set_aspect("equal", "datalim")
