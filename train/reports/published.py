"""Our scores beside those that a paper prints of the same models: `train.report published=`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from train.declarations.benchmark import Layout, Published, PublishedRow
from train.declarations.registry import benchmark_types, resolve
from train.errors import UserError
from train.reports.groups import Value
from train.reports.runs import Run
from train.reports.tables import Row, Table


def published_figures(benchmark: str) -> Published:
    """What a paper prints.

    Raises:
        UserError: if there is no such table, naming those that there are.
    """
    known = {name: one.published for name, one in benchmark_types().items() if one.published}
    if benchmark not in known:
        raise UserError(f"published={benchmark}: there are published figures of {', '.join(known)}")
    found: Any = resolve(known[benchmark])
    figures: Published = found
    return figures


def matches(row: PublishedRow, options: Mapping[str, Any]) -> bool:
    """Whether an evaluation is of a row's model, read as the row says.

    Args:
        options: dotted option → value, of its configuration.
    """
    path = str(options.get("model.path"))
    named = path in row.checkpoints or PurePath(path).name in {PurePath(c).name for c in row.checkpoints}
    return named and all(options.get(option) in allowed for option, allowed in row.options.items())


def beside_published(benchmark: str, runs: Sequence[Run]) -> tuple[list[Table], list[str]]:
    """Tables with the published figures, and ours below them where a run has them.

    Of a training run the untrained model's scores count.

    Returns:
        The tables; notes: the commands of rows without ours, and runs that are of no row.

    Raises:
        UserError: if there are no published figures.
    """
    figures = published_figures(benchmark)
    scored = {id(run): run.baseline if run.status == "finished" else run.scores for run in runs}
    of_row = [[run for run in runs if matches(row, run.config) and scored[id(run)]] for row in figures.rows]
    tables = []
    for layout in figures.layouts:
        rows: list[Row] = []
        for row, found in zip(figures.rows, of_row, strict=True):
            rows.append(_row(row.name, "published", figures, layout, row.scores))
            rows += [_row(row.name, run.name, figures, layout, scored[id(run)]) for run in found]
        labels = ["model", "figures", "kind"]
        tables.append(
            Table(layout.name, layout.title, labels, layout.columns, rows, layout.factor, layout.digits)
        )
    notes = [f"published: {figures.source}"]
    notes += [
        f"{row.name}: ours by python -m train.evaluate {shlex.join([*row.overrides, 'output=<file>.json'])}"
        for row, found in zip(figures.rows, of_row, strict=True)
        if not found
    ]
    matched = {id(run) for found in of_row for run in found}
    notes += [
        f"{run.name}: of no published row (model {run.config.get('model.path')}, pooling "
        f"{run.config.get('model.pooling')}): another model, pooling, instruction or option of the benchmark"
        for run in runs
        if id(run) not in matched
    ]
    return tables, notes


def _row(name: str, whose: str, figures: Published, layout: Layout, scores: Mapping[str, float]) -> Row:
    (_, keys), *_ = layout.rows
    values = [Value(scores[key], None, 1) if key in scores else None for key in keys]
    return [name, whose, figures.kind(scores)], values
