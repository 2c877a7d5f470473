"""Charts: a run's plots as PNG files, and the page's learning curves as SVG."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiomtune.declarations.examples import Distributions, Figures, Gain, Gains, Maps, Panel
from idiomtune.declarations.registry import benchmark_types, resolve
from idiomtune.reports.frames import Group
from idiomtune.reports.runs import RecordsOfRun, RunResults
from idiomtune.statistics import mean_interval

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
_PANEL_CHARACTERS = 32  # a line of a heading: a longer one would push panels apart
_NARROW, _FINE = 5.0, 160  # inches and dots an inch: print that is read on a phone too
_MAX_POINTS = 200
_STYLE: dict[Any, Any] = {
    **{"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3},
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


def draw_figures(run: RunResults) -> None:
    """Draw a finished run's learning curve and its benchmarks' figures into its `plots/`."""
    folder = run.path / "plots"
    step = str(run.meta.get("checkpoint", "")).removeprefix("step_")
    if curves := run_curves(run):
        best_step = int(step) if step.isdigit() else None
        title = f"{run.experiment}, seed {run.seed}"
        learning_curve(curves, best_step, title, folder / "learning_curve.png")
    for benchmark in benchmark_types().values():
        records = RecordsOfRun(run, benchmark.name)
        if benchmark.figures is not None and records:
            figures: Figures = resolve(benchmark.figures)(records)
            if figures.gains is not None:
                gains_chart(figures.gains, folder / f"{benchmark.name}_recall.png")
            if figures.maps is not None:
                sentence_maps(figures.maps, folder / f"{benchmark.name}_usage_map.png")


@contextmanager
def _save_figure(
    file: Path | io.BytesIO, width: float, height: float, *, constrained: bool = True, **options: Any
) -> Iterator[Any]:
    """A figure to draw on, saved at the end; its size is in inches.

    Args:
        constrained: matplotlib finds room for labels, for which it draws everything twice.
        options: of saving.
    """
    if isinstance(file, Path):
        file.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE | ({} if isinstance(file, Path) else _ON_THE_PAGE)):
        figure = Figure(figsize=(width, height), layout="constrained" if constrained else None)
        yield figure
        figure.savefig(file, **{"dpi": 120, **options})


# -------------------------------------------------------------------------------------- learning curves


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

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(line.label for line in self.lines))


def run_curves(run: RunResults) -> list[Curves]:
    """A run's training loss, and the scores of each benchmark that are drawn over its steps."""
    by_benchmark: dict[str, list[Line]] = {}
    for key, score in run.scores.only(scores_while_training(run)).parts.items():
        if score.is_drawn:
            lines = by_benchmark.setdefault(score.benchmark, [])
            lines.append(Line(key.removeprefix(f"{score.benchmark}/"), _scores(run, [key]), len(lines)))
    losses = Curves("Training loss", [Line("training loss", _losses(run), 0)], "loss", from_untrained=False)
    return _drawable_curves([losses, *(Curves(name, lines, "score") for name, lines in by_benchmark.items())])


def group_curves(groups: Sequence[Group]) -> list[Curves]:
    """Training loss and the monitored score of every run, a colour a group."""
    runs = [(number, group.name, run) for number, group in enumerate(groups) for run in group.runs]
    losses = [Line(name, _losses(run), number) for number, name, run in runs]
    scores = [Line(name, _scores(run, run.monitor), number) for number, name, run in runs]
    monitored = Curves("Monitored score", scores, "score (mean over trainer.monitor)")
    return _drawable_curves([Curves("Training loss", losses, "loss", from_untrained=False), monitored])


def _drawable_curves(curves: Sequence[Curves]) -> list[Curves]:
    """Lines without points left out."""
    drawn = [replace(plot, lines=[line for line in plot.lines if line.points]) for plot in curves]
    return [plot for plot in drawn if plot.lines]


def scores_while_training(run: RunResults) -> list[str]:
    """The scores that any checkpoint has."""
    return list(dict.fromkeys(key for line in _scored_runs(run) for key in line["scores"]))


def _scored_runs(run: RunResults) -> list[dict[str, Any]]:
    return [line for line in run.metrics[0] if isinstance(line.get("scores"), dict)]


def _losses(run: RunResults) -> list[tuple[float, float]]:
    """(step, training loss), at most a few hundred points: means over neighbours."""
    frame = _numbers(run.metrics[0], ["step", "loss"])
    blocks = np.arange(len(frame)) // (math.ceil(len(frame) / _MAX_POINTS) or 1)
    return list(frame.groupby(blocks).mean().itertuples(index=False, name=None))


def _scores(run: RunResults, keys: Sequence[str]) -> list[tuple[float, float]]:
    """(step, mean over scores) at each checkpoint that has them all, from the untrained model on."""
    lines = [{"step": 0, "scores": run.baseline}, *_scored_runs(run)]
    frame = _numbers([{**line["scores"], "step": line.get("step")} for line in lines], ["step", *keys])
    return list(zip(frame["step"], frame[list(keys)].mean(axis=1), strict=True)) if keys else []


def _numbers(lines: Sequence[Mapping[str, Any]], columns: list[str]) -> pd.DataFrame:
    """The lines that have a finite number in each of these columns."""
    frame = pd.DataFrame([[line.get(name) for name in columns] for line in lines], columns=columns)
    frame = frame.apply(pd.to_numeric, errors="coerce")
    return frame[np.isfinite(frame.to_numpy(float)).all(axis=1)]


def set_style(number: int) -> tuple[str, tuple[int, ...]]:
    """Colour and dashes of the line number `number`."""
    return _LINES[number % len(_LINES)], _DASHES[number // len(_LINES) % len(_DASHES)]


def curves_svg(curves: Sequence[Curves]) -> str:
    """Charts one above the other, as a data URI; transparent, for a light or a dark page."""
    file = io.BytesIO()
    heights = [_height(plot) for plot in curves]
    with _save_figure(
        file, 5, sum(heights), constrained=False, format="svg", metadata={"Date": None}
    ) as figure:
        _draw_curves(figure, curves, heights, None)
    return data_uri(file.getvalue(), "image/svg+xml")


def data_uri(content: bytes, kind: str) -> str:
    """A file's content, to embed in a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def learning_curve(curves: Sequence[Curves], best_step: int | None, title: str, path: Path) -> None:
    """Charts one above the other; a dotted line marks the best checkpoint."""
    heights = [_height(plot) + 1 for plot in curves]
    with _save_figure(path, 8, sum(heights) + 0.4, constrained=False) as figure:
        figure.suptitle(title, x=0.02, ha="left")
        _draw_curves(figure, curves, heights, best_step)


def _height(curves: Curves) -> float:
    """Of a chart, in inches, with its title, the labels of its axis, and a legend below."""
    return 3.0 + 0.2 * len(curves.labels)


def _draw_curves(
    figure: Any, curves: Sequence[Curves], heights: Sequence[float], best_step: int | None
) -> None:
    width, total = figure.get_size_inches()
    bottom = sum(heights)
    for chart, height in zip(curves, heights, strict=True):
        below = 0.85 + 0.2 * len(chart.labels)  # inches for the axis' labels and the legend
        bottom -= height
        rectangle = 0.75 / width, (bottom + below) / total, 1 - 0.9 / width, (height - below - 0.35) / total
        axes = figure.add_axes(rectangle)
        looks = {}
        for line in chart.lines:
            colour, dashes = set_style(line.number)
            style = {"color": colour, "linestyle": (0, dashes) if dashes else "-", "markersize": 4}
            style["marker"] = "o" if chart.from_untrained else ""
            (looks[line.label],) = axes.plot(*np.transpose(line.points), **style)
        if best_step is not None and chart.from_untrained:
            label = f"best checkpoint (step {best_step})"
            looks[label] = axes.axvline(best_step, color="0.5", linestyle=":")
        axes.set(title=chart.heading, ylabel=chart.y_label)
        axes.set_xlabel("step (0 = untrained)" if chart.from_untrained else "step")
        values = [y for line in chart.lines for _, y in line.points]
        if chart.from_untrained and values:
            axes.set_ylim(*_score_range(values))
        axes.locator_params(nbins=5)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(looks) > 1 or chart.from_untrained:
            below_axis = 0, -0.45 / (rectangle[3] * total)
            axes.legend(looks.values(), looks, loc="upper left", bbox_to_anchor=below_axis)


def _score_range(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis: at least a tenth of the scale, or differences of a thousandth would look like leaps."""
    low, high = min(values), max(values)
    height = max(1.1 * (high - low), max(1.0, abs(low), abs(high)) / 10)
    top = min((low + high + height) / 2, 1.01 if high <= 1 else math.inf)
    return top - height, top


# ----------------------------------------------------------------------------------- other figures


def violins(distributions: Distributions, path: Path) -> None:
    """A violin for each series of each group, with its median and quartiles."""
    groups = distributions.groups
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(1, len(names))
    everything: list[float] = []
    with _save_figure(path, 8, 5.5) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            shift = (number - (len(names) - 1) / 2) * width
            drawn = {n + shift: list(g[name]) for n, g in enumerate(groups.values()) if len(g.get(name, ()))}
            if drawn:
                shape = {"widths": width, "showextrema": False, "quantiles": [[0.25, 0.5, 0.75]] * len(drawn)}
                violin = axes.violinplot(list(drawn.values()), list(drawn), **shape)
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
    with _save_figure(path, _NARROW, height, dpi=_FINE) as figure:
        column = figure.subplots(len(counts), 1, sharex=True, squeeze=False, height_ratios=counts)[:, 0]
        for axes, (heading, rows) in zip(column, gains.groups.items(), strict=True):
            for position, gain in enumerate(rows):
                _draw_gain(axes, position, gain)
            axes.set_yticks(range(len(rows)), [f"{row.name}\n{len(row.after)} queries" for row in rows])
            axes.invert_yaxis()
            axes.set_title(heading)
            axes.grid(visible=False, axis="y")
        column[0].text(1.02, 1.02, "difference", transform=column[0].transAxes, fontsize="small")
        column[-1].set_xlabel(gains.label)
        figure.suptitle(gains.title, x=0.02, ha="left", fontsize="large")
        handles = column[0].containers[:4:2]  # both sides' bars, without their intervals
        figure.legend(handles=handles, loc="outside lower center", ncols=2)


def _draw_gain(axes: Any, row: int, gain: Gain) -> None:
    sides = ((-0.2, "untrained", "0.75", "///", gain.before), (0.2, "trained", "#0072b2", "", gain.after))
    for shift, side, colour, hatch, values in sides:
        mean, (low, high) = float(np.mean(values)), mean_interval(values)
        axes.barh(
            *(row + shift, mean, 0.38),
            xerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
            error_kw={"elinewidth": 1, "capsize": 2},
            **{"color": colour, "hatch": hatch, "edgecolor": "0.3", "linewidth": 0.5},
            label=f"{side}, 95% interval by query",
        )
    changes = np.subtract(gain.after, gain.before)
    low, high = mean_interval(changes)
    text = f"{changes.mean():+.3f}\n[{low:+.3f}, {high:+.3f}]"
    axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize="small")


def sentence_maps(maps: Maps, path: Path) -> None:
    """Small multiples: each group of texts by the untrained model and, to the right, by the trained one."""
    caption = fill(maps.caption, 72)
    heights = 0.9 + 0.16 * len(caption.splitlines()), 2.2 * len(maps.rows)
    others = (kind for kind in maps.kinds if kind not in _KINDS)
    looks = _KINDS | dict(zip(others, _OTHER_KINDS, strict=False))
    with _save_figure(path, _NARROW, sum(heights), dpi=_FINE) as figure:
        head, body = figure.subfigures(2, 1, height_ratios=heights)
        panels = [panel for row in maps.rows for panel in row]
        for axes, panel in zip(body.subplots(len(maps.rows), 2, squeeze=False).flat, panels, strict=True):
            _draw_panel(axes, panel, looks)
        shown = {kind: looks[kind] for kind in maps.kinds if kind in looks}
        handles = [Line2D([], [], color=c, marker=m, linestyle="", label=k) for k, (c, m) in shown.items()]
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
