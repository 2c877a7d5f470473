"""`report.html`: one file that needs nothing else, of one run or of several compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from train.declarations.registry import benchmark_of
from train.reports.compare import Comparison, Difference, comparison_notes
from train.reports.curves import group_curves, in_words, run_curves, scored_while_training
from train.reports.examples import examples_of, thumbnail
from train.reports.frames import Group, show
from train.reports.plots import curves_svg, data_uri, look
from train.reports.runs import Run, flat
from train.reports.score_tables import changes, detail_tables, paired_table, paper_tables, untested_table
from train.reports.tables import Table
from train.reports.verdicts import head_verdicts, not_counted

PAGE = "report.html"
_SECRET = re.compile(r"token|secret|password|api_?key|credential", re.IGNORECASE)
_HALF = 60  # of the width of an interval's bar


def page(
    groups: Sequence[Group], runs: Sequence[Run], compared: Sequence[Comparison], notes: Sequence[str]
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
    options = list(groups[0].options) if groups else []
    rows = [[group.name, group.summary, *group.options.values()] for group in groups]
    return _template().render(
        title=runs[0].experiment if one else f"{len(runs)} runs compared",
        subtitle=runs[0].name if one else ", ".join(dict.fromkeys(run.experiment for run in runs)),
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        one=one,
        looks=[look(number) for number in range(len(groups))],
        groups=Table("", ["group", "runs", *options], rows, 2 + len(options)),
        tables=paper_tables(groups),
        paired=[(paired_table(c), _bars(c), detail_tables(c)) for c in compared if c.is_tested],
        untested=untested_table(compared),
        curves=[] if one else group_curves(groups),
        views=[_view(run, with_examples=run.path in first) for run in runs if run.is_scored],
        verdicts=head_verdicts(groups, compared),
        notes=list(dict.fromkeys([*notes, *comparison_notes(compared), *not_counted(runs)])),
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
    environment.filters |= {"thumbnail": thumbnail, "svg": curves_svg, "in_words": in_words}
    return environment.get_template("report.html.j2")


def _bars(compared: Comparison) -> list[list[float]]:
    """Each difference's interval and middle in pixels, none if untested; one scale for all of a metric."""

    def values(d: Difference) -> tuple[float, ...]:
        return (*d.by_query, d.difference) if d.by_query else ()

    widest: dict[str, float] = {}
    for d in compared.differences:
        metric = d.key.rpartition("/")[2]
        widest[metric] = max([widest.get(metric, 0.0), *map(abs, values(d))])
    bars = []
    for d in compared.differences:
        scale = (_HALF - 2) / (widest[d.key.rpartition("/")[2]] or 1)
        bars.append([_HALF + value * scale for value in values(d)])
    return bars


def _view(run: Run, *, with_examples: bool) -> dict[str, Any]:
    """What the page shows of a run; `sections` are closed ones of names and values."""
    metrics, damaged = run.metrics
    notes = list(run.notes)
    if damaged:
        notes.append(f"metrics.jsonl: {damaged} lines are damaged")
    if run.path.is_dir() and not metrics:
        notes.append("metrics.jsonl is missing or empty: no learning curves")
    drawn = {benchmark_of(key).name for key in scored_while_training(run)}
    without = {benchmark_of(key).name: None for key in run.scores if benchmark_of(key).name not in drawn}
    if drawn and without:
        notes.append(
            f"scored untrained and at the best checkpoint alone, so without curves: {', '.join(without)}"
        )
    examples, damaged_records = examples_of(run) if with_examples else ([], [])
    missing = run.meta.get("not_scored")
    if isinstance(missing, dict):
        notes += [f"{name} was not scored: {str(why).partition(chr(10))[0]}" for name, why in missing.items()]
    sections = {
        "Code, device, packages": _facts(run),
        "Configuration": _options(run),
        "Data files and their SHA-256": [(_home(path), sum_) for path, sum_ in run.files.items()],
    }
    shown = {"run": run, "notes": [*notes, *damaged_records], "sections": sections, "examples": examples}
    plots = _plots(run) if with_examples else []
    return shown | {"curves": run_curves(run), "plots": plots, "scores": changes(run.scores, run.baseline)}


def _facts(run: Run) -> list[tuple[str, str]]:
    """Everything that the run recorded but its data, which has its own section."""
    facts = {
        "status": run.status,
        **run.record,
        **run.meta,
        "scored on": run.meta.get("data"),
        "folder": str(run.path),
    }
    apart = ("data", "files", "config", "notes", "warnings", "not_scored")
    known = flat(
        {name: value for name, value in facts.items() if name not in apart and value not in (None, "")}
    )
    return [(name.replace("_", " "), _home(show(value))) for name, value in known.items()]


def _options(run: Run) -> list[tuple[str, str]]:
    return [
        (key, "(hidden)" if _SECRET.search(key) and value is not None else _home(show(value)))
        for key, value in run.config.items()
    ]


def _home(text: str) -> str:
    """Without the name of who ran it."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _plots(run: Run) -> list[tuple[str, str]]:
    """The benchmarks' own plots; the learning curve is drawn again."""
    plots = []
    for path in sorted((run.path / "plots").glob("*.png")) if run.path.is_dir() else []:
        try:
            if path.stem != "learning_curve":
                plots.append((path.stem.replace("_", " "), data_uri(path.read_bytes(), "image/png")))
        except OSError:
            continue
    return plots
