"""Our scores and those that a paper prints of the same models: `train.report published=`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from train.declarations.benchmark import Published, PublishedRow
from train.declarations.registry import benchmark_types, resolve
from train.errors import UserError
from train.reports.frames import Mean
from train.reports.runs import Run
from train.reports.score_tables import pivot
from train.reports.tables import Table


def matches(row: PublishedRow, options: Mapping[str, Any]) -> bool:
    """Whether an evaluation is of a row's model, read as the row says.

    Args:
        options: dotted option → value, of its configuration.
    """
    path = str(options.get("model.path"))
    is_model = path in row.checkpoints or PurePath(path).name in {PurePath(c).name for c in row.checkpoints}
    return is_model and all(options.get(option) in allowed for option, allowed in row.options.items())


def published_tables(benchmark: str, runs: Sequence[Run]) -> tuple[list[Table], list[str]]:
    """Tables with the published figures, and ours below them if a run has them.

    Of a training run the untrained model's scores count.

    Returns:
        The tables; notes: the commands of rows without ours, and runs that are of no row.

    Raises:
        UserError: if there are no published figures.
    """
    known = {name: one.published for name, one in benchmark_types().items() if one.published}
    if benchmark not in known:
        raise UserError(f"published={benchmark}: there are published figures of {', '.join(known)}")
    figures: Published = resolve(known[benchmark])()
    rows: list[tuple[str, str, Mapping[str, float]]] = []  # model, whose figures, scores
    notes = [f"published: {figures.source}"]
    for row in figures.rows:
        rows.append((row.name, "published", row.scores))
        for run in runs:
            scores = run.baseline if run.status == "finished" else run.scores
            if scores and matches(row, run.config):
                rows.append((row.name, run.name, scores))
        if rows[-1][1] == "published":
            command = shlex.join([*row.overrides, "output=<file>.json"])
            notes.append(f"{row.name}: ours by python -m train.evaluate {command}")
    matched = {whose for _, whose, _ in rows}
    notes += [
        f"{run.name}: of no published row (model {run.config.get('model.path')}, pooling "
        f"{run.config.get('model.pooling')}): another model, pooling, instruction or option of the benchmark"
        for run in runs
        if run.name not in matched
    ]
    tables = [
        pivot(
            title,
            ["model", "figures", "kind"],
            list(keys),
            (
                ((model, whose, figures.kind(of)), column, Mean(of[key]) if key in of else None)
                for model, whose, of in rows
                for column, key in keys.items()
            ),
            name=name,
        )
        for (name, title), keys in figures.tables.items()
    ]
    return tables, notes
