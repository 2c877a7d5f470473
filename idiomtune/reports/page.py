"""`report.html`: one self-contained file, of one run or of several compared."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from idiomtune.io.files import flat
from idiomtune.io.pages import template
from idiomtune.io.secrets import OPTION, hide_secrets
from idiomtune.plugins.registry import benchmark_types
from idiomtune.reports.benchmark_report import BenchmarkReport, Example, benchmark_report
from idiomtune.reports.compare import GroupComparison, comparison_notes
from idiomtune.reports.frames import Group, show
from idiomtune.reports.plots import (
    curves_svg,
    data_uri,
    group_curves,
    run_curves,
    scores_while_training,
    set_style,
)
from idiomtune.reports.runs import RunResults
from idiomtune.reports.score_tables import changes, detail_tables, paired_table, untested_table
from idiomtune.reports.tables import Table

PAGE = "report.html"
_HALF = 60  # of the width of an interval's bar, in pixels
_THUMBNAIL = (120, 90)  # pixels
_SHOWN_ELSEWHERE = ("data", "files", "config", "notes", "warnings", "not_scored")  # facts


def page(
    groups: Sequence[Group],
    runs: Sequence[RunResults],
    tables: Sequence[Table],
    compared: Sequence[GroupComparison],
    verdicts: Sequence[str],
    notes: Sequence[str],
) -> str:
    """The page as HTML.

    Args:
        groups: of the runs that are scored.
        runs: all, also those that failed.
        tables: of scores.
        compared: differences to show.
        verdicts, notes: what to say first.
    """
    is_single = len(runs) == 1
    first = {group.runs[0].path for group in groups}
    options = list(groups[0].options) if groups else []
    rows = [[group.name, group.summary, *group.options.values()] for group in groups]
    file, filters = Path(__file__).parent / "report.html.j2", (thumbnail, curves_svg)
    text = template(file, filters, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return text.render(
        title=runs[0].experiment if is_single else f"{len(runs)} runs compared",
        subtitle=runs[0].name if is_single else ", ".join(dict.fromkeys(run.experiment for run in runs)),
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        one=is_single,
        looks=[set_style(number) for number in range(len(groups))],
        groups=Table("", ["group", "runs", *options], rows, 2 + len(options)),
        tables=tables,
        paired=[(paired_table(c), _bars(c), detail_tables(c)) for c in compared if c.is_tested],
        untested=untested_table(compared),
        curves=[] if is_single else group_curves(groups),
        views=[_view(run, with_examples=run.path in first) for run in runs if run.is_scored],
        verdicts=verdicts,
        notes=[*notes, *comparison_notes(compared)],
    )


def _bars(compared: GroupComparison) -> list[list[float]]:
    """Each difference's interval and middle in pixels, empty if untested; one scale for all of a metric."""
    rows = [(*d.by_query, d.difference) if d.by_query else () for d in compared.differences]
    metrics = [d.score.metric for d in compared.differences]
    widest: dict[str, float] = {}
    for metric, values in zip(metrics, rows, strict=True):
        widest[metric] = max([widest.get(metric, 0.0), *map(abs, values)])
    return [
        [_HALF + value * (_HALF - 2) / (widest[metric] or 1) for value in values]
        for metric, values in zip(metrics, rows, strict=True)
    ]


def _view(run: RunResults, *, with_examples: bool) -> dict[str, Any]:
    """The page's view of a run; `sections` are folded tables of names and values."""
    metrics, damaged = run.metrics
    notes = list(run.notes)
    if damaged:
        notes.append(f"metrics.jsonl: {damaged} lines are damaged")
    if run.path.is_dir() and not metrics:
        notes.append("metrics.jsonl is missing or empty: no learning curves")
    drawn = {score.benchmark for score in run.scores.only(scores_while_training(run)).parts.values()}
    without = dict.fromkeys(s.benchmark for s in run.scores.parts.values() if s.benchmark not in drawn)
    if drawn and without:
        reason = "scored only untrained and at the best checkpoint"
        notes.append(f"{reason}, so without curves: {', '.join(without)}")
    missing = run.meta.get("not_scored")
    if isinstance(missing, dict):
        notes += [
            f"{name} was not scored: {str(problem).partition(chr(10))[0]}"
            for name, problem in missing.items()
        ]
    reports = [benchmark_report(run, name) for name in benchmark_types()] if with_examples else []
    examples = [report for report, _ in reports if report and report.examples]
    notes += [note for _, damage in reports for note in damage]
    facts = {"status": run.status, **run.record, **run.meta, "scored on": run.meta.get("data")}
    facts |= {"folder": str(run.path)} | dict.fromkeys(_SHOWN_ELSEWHERE)
    secret = {k for k, v in run.config.items() if v and (OPTION.search(k) or hide_secrets(str(v)) != str(v))}
    return {
        "run": run,
        "notes": notes,
        "sections": {
            "Code, device, packages": [
                (name.replace("_", " "), _home(show(value)))
                for name, value in flat({k: v for k, v in facts.items() if v not in (None, "")}).items()
            ],
            "Configuration": [
                (key, "(hidden)" if key in secret else _home(show(value)))
                for key, value in run.config.items()
            ],
            "Data files and their SHA-256": [(_home(path), sum_) for path, sum_ in run.files.items()],
        },
        "examples": examples,
        "curves": run_curves(run),
        "plots": _plots(run) if with_examples else [],
        "scores": changes(run.scores, run.baseline),
    }


def _home(text: str) -> str:
    """The path without the user's home folder."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _plots(run: RunResults) -> list[tuple[str, str]]:
    """The benchmarks' own plots; the learning curve is drawn again."""
    paths = sorted({*(run.path / "plots").glob("*.png")} - {run.path / "plots" / "learning_curve.png"})
    return [(path.stem.replace("_", " "), data_uri(path.read_bytes(), "image/png")) for path in paths]


def find_greatest_gain(run: RunResults) -> tuple[BenchmarkReport, Example] | None:
    """The query that gained most by training, of the first monitored benchmark that has one."""
    for name in dict.fromkeys(key.partition("/")[0] for key in run.monitor):
        report, _ = benchmark_report(run, name)
        if report is not None and report.greatest_gain is not None:
            return report, report.greatest_gain
    return None


def thumbnail(path: Path | None) -> str | None:
    """A small JPEG as a data URI; None if there is no readable image."""
    if path is None:
        return None
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            small = image.convert("RGB")
            small.thumbnail(_THUMBNAIL)
            file = io.BytesIO()
            small.save(file, "JPEG", quality=70)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return data_uri(file.getvalue(), "image/jpeg")
