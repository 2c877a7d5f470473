"""Learning curves of runs, and what benchmarks have drawn at a run's end from its results of each query."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from train.declarations.figures import Figures
from train.declarations.registry import benchmark_of, benchmark_types, is_curve, resolve
from train.reports.examples import RecordsOfRun
from train.reports.frames import Group
from train.reports.plots import Curves, Line, gains_chart, learning_curve, sentence_maps
from train.reports.runs import Run

_MAX_POINTS = 200


def draw_figures(run: Run) -> None:
    """Draw a finished run's learning curve and its benchmarks' figures into its `plots/`."""
    folder = run.path / "plots"
    step = str(run.meta.get("checkpoint", "")).removeprefix("step_")
    if curves := run_curves(run):
        best_step = int(step) if step.isdigit() else None
        title = f"{run.experiment}, seed {run.seed}"
        learning_curve(curves, best_step, title, folder / "learning_curve.png")
    for benchmark in benchmark_types().values():
        records = RecordsOfRun(run, benchmark.name)
        if benchmark.figures is not None and records.is_there:
            figures: Figures = resolve(benchmark.figures)(records)
            if figures.gains is not None:
                gains_chart(figures.gains, folder / f"{benchmark.name}_recall.png")
            if figures.maps is not None:
                sentence_maps(figures.maps, folder / f"{benchmark.name}_usage_map.png")


def run_curves(run: Run) -> list[Curves]:
    """A run's training loss, and the scores of each benchmark that are drawn over its steps."""
    keys = [key for key in scored_while_training(run) if key in run.scores and is_curve(key)]
    by_benchmark: dict[str, list[Line]] = {}
    for key in keys:
        lines = by_benchmark.setdefault(benchmark_of(key).name, [])
        lines.append(Line(key.partition("/")[2], _scored(run, [key]), len(lines)))
    losses = Curves("Training loss", [Line("training loss", _losses(run), 0)], "loss", from_untrained=False)
    return _drawable([losses, *(Curves(name, lines, "score") for name, lines in by_benchmark.items())])


def group_curves(groups: Sequence[Group]) -> list[Curves]:
    """Training loss and the monitored score of every run, a colour a group."""
    runs = [(number, group.name, run) for number, group in enumerate(groups) for run in group.runs]
    losses = [Line(name, _losses(run), number) for number, name, run in runs]
    scores = [Line(name, _scored(run, run.monitor), number) for number, name, run in runs]
    monitored = Curves("Monitored score", scores, "score (mean over trainer.monitor)")
    return _drawable([Curves("Training loss", losses, "loss", from_untrained=False), monitored])


def _drawable(curves: Sequence[Curves]) -> list[Curves]:
    """Lines without points left out."""
    drawn = [replace(one, lines=[line for line in one.lines if line.points]) for one in curves]
    return [one for one in drawn if one.lines]


def in_words(curves: Sequence[Curves]) -> str:
    """What charts show."""
    labels = (", ".join(dict.fromkeys(line.label for line in one.lines)) for one in curves)
    return "; ".join(f"{one.heading}: {label}" for one, label in zip(curves, labels, strict=True))


def scored_while_training(run: Run) -> list[str]:
    """The scores that any checkpoint has."""
    scores = [line["scores"] for line in run.metrics[0] if isinstance(line.get("scores"), Mapping)]
    return list(dict.fromkeys(key for one in scores for key in one))


def _losses(run: Run) -> list[tuple[float, float]]:
    """(step, training loss), at most a few hundred points: means over neighbours."""
    found = [(_finite(line.get("step")), _finite(line.get("loss"))) for line in run.metrics[0]]
    points = [(x, y) for x, y in found if x is not None and y is not None]
    size = math.ceil(len(points) / _MAX_POINTS) or 1
    blocks = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (statistics.fmean(x), statistics.fmean(y)) for x, y in (zip(*block, strict=True) for block in blocks)
    ]


def _scored(run: Run, keys: Sequence[str]) -> list[tuple[float, float]]:
    """(step, mean over scores) at each checkpoint that has them all, from the untrained model on."""
    points = []
    for line in [{"step": 0, "scores": run.baseline}, *run.metrics[0]]:
        step, scores = _finite(line.get("step")), line.get("scores")
        values = [_finite(scores.get(key)) for key in keys] if isinstance(scores, Mapping) else []
        if step is not None and values and None not in values:
            points.append((step, statistics.fmean(value for value in values if value is not None)))
    return points


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
