"""`report.html`: one file that needs nothing else, of one run or of several compared."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from train.declarations.examples import Examples
from train.declarations.registry import benchmark_of, is_curve
from train.reports.charts import Line, css, line_chart
from train.reports.compare import Difference, Paired, paired_notes
from train.reports.examples import data_uri, examples_of, thumbnail
from train.reports.groups import Group, data_files, show
from train.reports.head import head_verdicts, not_counted
from train.reports.runs import Run, read_lines, sample_note
from train.reports.scorecard import ScoreRow, score_rows
from train.reports.tables import PAIRED_HEADS, idiom_tables, paired_cells, paper_tables, verdict

log = logging.getLogger(__name__)

PAGE = "report.html"
_SECRET = re.compile(r"token|secret|password|api_?key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class Chart:
    """A drawing and what its lines are: (label, class, dashes)."""

    heading: str
    svg: Markup
    legend: list[tuple[str, str, str]]


@dataclass(frozen=True)
class RunView:
    """What the page shows of a run."""

    run: Run
    facts: list[tuple[str, str]]
    options: list[tuple[str, str]]
    data: list[tuple[str, str]]
    charts: list[Chart]
    scorecard: list[ScoreRow]
    examples: list[Examples]
    plots: list[tuple[str, str]]
    notes: list[str]


def page(
    groups: Sequence[Group], runs: Sequence[Run], compared: Sequence[Paired], notes: Sequence[str]
) -> str:
    """The page as HTML.

    Args:
        groups: of the runs that are scored.
        runs: all, also those that failed.
        compared: differences to show.
        notes: what to say first.
    """
    one = len(runs) == 1
    first = {group.runs[0].path for group in groups}
    views = [view(run, with_examples=run.path in first) for run in runs if run.is_scored]
    notes = list(dict.fromkeys([*sample_note(runs), *notes, *paired_notes(compared)]))
    return _template().render(
        title=runs[0].experiment if one else f"{len(runs)} runs compared",
        subtitle=str(runs[0].name) if one else ", ".join(dict.fromkeys(run.experiment for run in runs)),
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        one=one,
        groups=[(group, *css(number)) for number, group in enumerate(groups)],
        option_keys=list(groups[0].options) if groups else [],
        tables=paper_tables(groups),
        paired=[
            (p, [(paired_cells(d), verdict(d), _bar(d, p)) for d in p.differences], idiom_tables(p))
            for p in compared
            if p.is_tested
        ],
        untested=[
            (p, [paired_cells(d)[:4] for d in p.differences])
            for p in compared
            if p.differences and not p.is_tested
        ],
        paired_heads=PAIRED_HEADS,
        charts=[] if one else comparison_charts(groups),
        views=views,
        rest=not_counted(runs),
        verdicts=head_verdicts(groups, compared),
        notes=notes,
    )


@cache  # compiling it takes longer than filling it in
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thumbnail"] = thumbnail
    return environment.get_template("report.html.j2")


def _bar(d: Difference, paired: Paired) -> Markup:
    """The interval on a line whose middle is no difference; one scale for all of a metric."""
    if d.by_query is None:
        return Markup("")
    metric = d.key.rpartition("/")[2]
    alike = [o for o in paired.differences if o.key.endswith(f"/{metric}") and o.by_query is not None]
    widest = max(abs(end) for o in alike for end in (*(o.by_query or ()), o.difference))
    scale = 58 / widest if widest else 0.0
    low, high, middle = (60 + value * scale for value in (*d.by_query, d.difference))
    return Markup(
        '<svg class="bar" viewBox="0 0 120 14" aria-hidden="true"><line class="zero" x1="60" x2="60" y1="0" '
        'y2="14"/><line class="range" x1="{}" x2="{}" y1="7" y2="7"/><circle cx="{}" cy="7" r="3"/></svg>'
    ).format(f"{low:.1f}", f"{high:.1f}", f"{middle:.1f}")


def view(run: Run, *, with_examples: bool) -> RunView:
    """A run's part of the page."""
    metrics, damaged = read_lines(run.path / "metrics.jsonl") if run.path.is_dir() else ([], 0)
    notes = list(run.notes)
    if damaged:
        notes.append(f"metrics.jsonl: {damaged} lines are damaged")
    if run.path.is_dir() and not metrics:
        notes.append("metrics.jsonl is missing or empty: no learning curves")
    notes += _without_curves(run, metrics)
    examples, damaged_records = examples_of(run) if with_examples else ([], [])
    notes += damaged_records
    missing = run.meta.get("not_scored")
    if isinstance(missing, dict):
        reasons = {name: str(why).partition("\n")[0] for name, why in missing.items()}
        notes += [f"{name} was not scored: {why}" for name, why in reasons.items()]
    return RunView(
        run=run,
        facts=_facts(run),
        options=_options(run.config),
        data=[(_home(path), checksum) for path, checksum in data_files(run).items()],
        charts=_charts(run, metrics),
        scorecard=score_rows(run.scores, run.baseline),
        examples=examples,
        plots=_plots(run) if with_examples else [],
        notes=notes,
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    record, meta = run.record, run.meta
    code = record.get("code") or meta.get("code")
    packages = record.get("packages") or meta.get("packages")
    facts = {
        "status": run.status,
        "experiment": run.experiment,
        "seed": run.seed,
        "base model": meta.get("model"),
        "trained on": meta.get("trained_on"),
        "scored on": meta.get("data"),
        "best checkpoint": meta.get("checkpoint"),
        "steps": record.get("steps"),
        "started": record.get("started"),
        "ended": record.get("ended"),
        "device": record.get("reason") or meta.get("device"),
        "code": _pairs(code),
        "packages": _pairs(packages),
        "folder": _home(str(run.path)),
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _pairs(facts: Any) -> str:
    return (
        ", ".join(f"{name} {show(value)}" for name, value in facts.items()) if isinstance(facts, dict) else ""
    )


def _options(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, "(hidden)" if _SECRET.search(key) and value is not None else _home(show(value)))
        for key, value in config.items()
    ]


def _home(text: str) -> str:
    """Without the name of who ran it."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _plots(run: Run) -> list[tuple[str, str]]:
    """The benchmarks' own plots; the learning curve is drawn anew."""
    plots = []
    for path in sorted((run.path / "plots").glob("*.png")) if run.path.is_dir() else []:
        if path.stem != "learning_curve":
            try:
                plots.append((path.stem.replace("_", " "), data_uri(path.read_bytes(), "image/png")))
            except OSError:
                continue
    return plots


def _charts(run: Run, metrics: Sequence[Mapping[str, Any]]) -> list[Chart]:
    losses = [Line("training loss", _loss(metrics), 0)]
    charts = [_chart("Training loss", losses, "loss", markers=False)]
    curves = [key for key in _scored_while_training(metrics) if key in run.scores and is_curve(key)]
    for benchmark in dict.fromkeys(benchmark_of(key) for key in curves):
        keys = [key for key in curves if benchmark_of(key) is benchmark]
        lines = [
            Line(key.partition("/")[2], _scored(run, metrics, [key]), number)
            for number, key in enumerate(keys)
        ]
        charts.append(_chart(benchmark.name, lines, "score"))
    return [chart for chart in charts if chart.svg]


def _chart(heading: str, lines: Sequence[Line], y_label: str, *, markers: bool = True) -> Chart:
    drawn = [line for line in lines if line.points]
    svg = line_chart(drawn, "step (0 = untrained)" if markers else "step", y_label, markers=markers)
    legend = dict.fromkeys((line.label, *css(line.number)) for line in drawn)
    return Chart(heading, svg, list(legend))


def _loss(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    points = [(_finite(m.get("step")), _finite(m.get("loss"))) for m in metrics]
    return [(x, y) for x, y in points if x is not None and y is not None]


def _scored_while_training(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The scores that any checkpoint has."""
    found = [m["scores"] for m in metrics if isinstance(m.get("scores"), Mapping)]
    return list(dict.fromkeys(key for scores in found for key in scores))


def _without_curves(run: Run, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The note on benchmarks that no checkpoint was scored on while training, if there are any."""
    during = {benchmark_of(key).name for key in _scored_while_training(metrics)}
    names = dict.fromkeys(benchmark_of(key).name for key in run.scores)
    without = [name for name in names if during and name not in during]
    return (
        [f"scored untrained and at the best checkpoint alone, so without curves: {', '.join(without)}"]
        if without
        else []
    )


def _scored(run: Run, metrics: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[tuple[float, float]]:
    """The mean over scores at each checkpoint that has them all, from the untrained model on."""
    evaluations: list[tuple[Any, Any]] = [(0, run.baseline)]
    evaluations += [(m.get("step"), m.get("scores")) for m in metrics if "scores" in m]
    points = []
    for step, scores in evaluations:
        x = _finite(step)
        values = [_finite(scores.get(key)) for key in keys] if isinstance(scores, Mapping) else []
        known = [value for value in values if value is not None]
        if x is not None and known and len(known) == len(values):
            points.append((x, math.fsum(known) / len(known)))
    return points


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def comparison_charts(groups: Sequence[Group]) -> list[Chart]:
    """Training loss and the monitored score of every run, a colour a group."""
    losses, scores = [], []
    for number, group in enumerate(groups):
        for run in group.runs:
            if not run.path.is_dir():
                continue
            metrics, _ = read_lines(run.path / "metrics.jsonl")
            losses.append(Line(group.name, _loss(metrics), number))
            scores.append(Line(group.name, _scored(run, metrics, run.monitor), number))
    charts = [
        _chart("Training loss", losses, "loss", markers=False),
        _chart("Monitored score", scores, "score (mean over trainer.monitor)"),
    ]
    return [chart for chart in charts if chart.svg]
