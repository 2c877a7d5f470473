"""Charts: a run's plots as PNG files, and the page's learning curves as SVG."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from idiomtune.plugins.registry import benchmark_types
from idiomtune.reports.benchmark_report import benchmark_report
from idiomtune.reports.frames import Group
from idiomtune.reports.runs import RunResults

# Of lines: legible on light and on dark; then the dashes change.
_LINES = ("#3b84d6", "#e0702a", "#2f9e5f", "#a25fd6", "#d1498a", "#1e9bab", "#a8871a", "#7c8894")
_DASHES: Sequence[tuple[int, ...]] = ((), (6, 3), (2, 3))
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
    for benchmark in benchmark_types():
        report, _ = benchmark_report(run, benchmark)
        for name, draw in report.figures.items() if report else ():
            with mpl.rc_context(_STYLE):
                if (figure := draw()) is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    figure.savefig(folder / f"{name}.png")


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
    with mpl.rc_context(_STYLE | _ON_THE_PAGE):
        _draw_curves(curves, 5).savefig(file, format="svg", metadata={"Date": None})
    return data_uri(file.getvalue(), "image/svg+xml")


def data_uri(content: bytes, kind: str) -> str:
    """A file's content, to embed in a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def learning_curve(curves: Sequence[Curves], best_step: int | None, title: str, path: Path) -> None:
    """Charts one above the other; a dotted line marks the best checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure = _draw_curves(curves, 8, best_step)
        figure.suptitle(title, x=0.02, ha="left")
        figure.savefig(path)


def _draw_curves(curves: Sequence[Curves], width: float, best_step: int | None = None) -> Figure:
    heights = [3.4 + 0.2 * len(chart.labels) for chart in curves]  # inches, with a legend below each
    figure = Figure(figsize=(width, sum(heights)), dpi=120, layout="constrained")
    column = figure.subplots(len(curves), squeeze=False, height_ratios=heights)[:, 0]
    for chart, axes in zip(curves, column, strict=True):
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
            axes.legend(looks.values(), looks, loc="upper left", bbox_to_anchor=(0, -0.2))
    return figure


def _score_range(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis: at least a tenth of the scale, or differences of a thousandth would look like leaps."""
    low, high = min(values), max(values)
    height = max(1.1 * (high - low), max(1.0, abs(low), abs(high)) / 10)
    top = min((low + high + height) / 2, 1.01 if high <= 1 else math.inf)
    return top - height, top
