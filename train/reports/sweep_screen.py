"""What the terminal shows at the end of a sweep: a row a job, the best of them, the command of the report."""

from __future__ import annotations

import shlex
import statistics
from pathlib import Path

from train.errors import UserError
from train.io.text import printable
from train.reports.console import print_table
from train.reports.groups import differing_options, short_key
from train.reports.runs import Run, find_runs, read_runs
from train.reports.scorecard import decimals

_MAX_ROWS = 30


def show_finished_sweep(folder: Path) -> None:
    """The jobs of a sweep, the best monitored score first; nothing where fewer than two left a run."""
    try:
        runs = read_runs(find_runs([folder])[0])
    except UserError:  # no job got as far as that
        return
    if len(runs) < 2:
        return
    keys, values = differing_options(runs)
    rows = []
    for run, options in zip(runs, values, strict=True):
        scores = _monitored(run, trained=True), _monitored(run, trained=False)
        rows.append((run, options, *scores))
    monitors = list(dict.fromkeys(tuple(run.monitor) for run in runs if run.is_scored))
    is_ranked = len(monitors) == 1 and bool(monitors[0])  # else these are other scores in each job
    title = f"{len(runs)} jobs"
    if is_ranked:
        rows.sort(key=lambda row: (row[2] is None, -(row[2] or 0.0)))  # equal ones in their order
        several = len(monitors[0]) > 1
        title += f" by {f'the mean of {len(monitors[0])} monitored scores' if several else monitors[0][0]}"
    elif monitors:
        title += ", each by the scores that it monitors"
    shown = [
        [run.path.name, *options, run.status, decimals(before), decimals(after)]
        for run, options, after, before in rows[:_MAX_ROWS]
    ]
    labels = ["job", *(short_key(key, keys) for key in keys), "status"]
    print_table(title, labels, ["untrained", "trained"], shown)
    if len(rows) > _MAX_ROWS:
        print(f"… and {len(rows) - _MAX_ROWS} more")
    if is_ranked and len(monitors[0]) > 1:
        print(f"monitored: {', '.join(monitors[0])}")
    best, options, after, _ = rows[0]
    if is_ranked and after is not None:
        chosen = ", ".join(f"{key}={value}" for key, value in zip(keys, options, strict=True))
        what = f"{best.path.name}{f' ({chosen})' if chosen else ''}, model {best.path / 'best'}"
        print(printable(f"the best job: {what}"))
    if monitors:
        page = f"tables, intervals and a page: python -m train.report {shlex.quote(str(folder))}"
        print(printable(page))


def _monitored(run: Run, *, trained: bool) -> float | None:
    scores = run.scores if trained else run.baseline
    known = [scores[key] for key in run.monitor if key in scores]
    return statistics.fmean(known) if run.is_scored and known and len(known) == len(run.monitor) else None
