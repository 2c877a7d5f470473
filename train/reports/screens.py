"""What the terminal shows at the end of a run, an evaluation or a sweep: one screen."""

from __future__ import annotations

import logging
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from train.errors import UserError
from train.io.files import write_text
from train.io.text import printable
from train.reports.compare import UNTRAINED, Difference, compare
from train.reports.frames import data_notes, group_runs, options_of, short_key
from train.reports.runs import Run, find_runs, read_run, read_runs
from train.reports.score_tables import changeable, changes, decimals, paper_tables, show_interval
from train.reports.tables import Table, print_notes, print_table
from train.reports.verdicts import beats_untrained, in_words

log = logging.getLogger(__name__)

_MAX_JOBS = 30


def show_finished_run(folder: Path, *, all_scores: bool) -> None:
    """A run's own page, in its folder, and its last screen. What goes wrong is a warning: the run is done.

    The screen has the monitored scores with intervals, a table a benchmark, and where everything is.
    """
    try:
        from train.reports.page import PAGE, page  # with matplotlib, which takes a second

        run = read_run(folder, folder.name)
        groups = group_runs([run]) if run.is_scored else []
        compared = [compare(group) for group in groups if run.baseline]
        write_text(folder / PAGE, page(groups, [run], compared, data_notes([run])))
        monitored = [compare(group, keys=run.monitor) for group in groups]
        differences = {d.key: d for one in monitored for d in one.differences}
        step = str(run.meta.get("checkpoint", "")).removeprefix("step_")
        title = f"monitored, untrained → best checkpoint (step {step})"
        tables = [_monitored_table(run, differences, title)]
        if all_scores:
            heads = ("before", "after")
            tables.append(changes(changeable(run.scores), run.baseline, "all scores", heads))
        for table in [*tables, *([] if all_scores else paper_tables(groups))]:
            if table.rows:
                print_table(table)
        # What was scored, then what there is to know of it.
        print_notes(str(run.meta.get("data", "")).split("; ")[1:])
        for note in run.notes:
            log.warning("%s", note)
        verdict = beats_untrained(run.monitor, run.scores, run.baseline, differences)
        # Only a trained model has some scores.
        log.info(
            "%s", f"the best checkpoint {verdict}" if verdict else f"monitored: {', '.join(run.monitor)}"
        )
        log.info("the best model: %s; its page: %s", folder / "best", folder / PAGE)
        log.info("all scores: scores.json there, or python -m train.report %s scores=all", folder)
    except Exception as error:  # nothing about a page may spoil a finished run
        log.warning("%s could not be written (%s: %s)", folder / "report.html", type(error).__name__, error)


def _monitored_table(run: Run, differences: Mapping[str, Difference], title: str) -> Table:
    """The scores that chose the checkpoint; those that only a trained model has stand alone."""
    rows, verdicts = [], []
    for key in filter(run.scores.__contains__, run.monitor):
        after, before, d = run.scores[key], run.baseline.get(key), differences.get(key)
        change = None if before is None else after - before
        interval = show_interval(d.by_query if d else None)
        rows.append([key, decimals(before), decimals(after), decimals(change, "+"), interval, in_words(d)])
        verdicts.append(d.verdict if d else "")
    columns = ["score", UNTRAINED, "trained", "difference", "95% by query", "verdict"]
    return Table(title, columns, rows, verdicts=verdicts)


def show_scores(scores: Mapping[str, float], model: str, notes: Sequence[str], *, all_scores: bool) -> None:
    """The scores of an evaluation: a table a benchmark, or every score."""
    if all_scores:
        rows = [[key, decimals(value)] for key, value in scores.items()]
        print_table(Table(", ".join([model, *notes]), ["score", "value"], rows))
        return
    run = Run(Path(), model, "scored", scores=scores, meta={"model": model})
    for table in paper_tables(group_runs([run])):
        print_table(table)
    print_notes(notes)
    log.info("%d scores in all: scores=all prints them, output=<file> writes them", len(scores))


def show_finished_sweep(folder: Path) -> None:
    """The jobs of a sweep, the best monitored score first; nothing if fewer than two left a run."""
    try:
        runs = read_runs(find_runs([folder])[0])
    except UserError:  # no job got as far as that
        return
    if len(runs) < 2:
        return
    options, _ = options_of(runs, repetitions=True)
    monitors = list(dict.fromkeys(tuple(run.monitor) for run in runs if run.is_scored))
    is_ranked = len(monitors) == 1 and bool(monitors[0])  # else these are other scores in each job
    jobs = [
        (run, list(row), _monitored(run, run.baseline), _monitored(run, run.scores))
        for run, row in zip(runs, options.itertuples(index=False), strict=True)
    ]
    title = f"{len(runs)} jobs"
    if is_ranked:
        jobs.sort(key=lambda job: (job[3] is None, -(job[3] or 0.0)))  # equal ones in their order
        several = len(monitors[0]) > 1
        title += f" by {f'the mean of {len(monitors[0])} monitored scores' if several else monitors[0][0]}"
    elif monitors:
        title += ", each by the scores that it monitors"
    labels = ["job", *(short_key(key, list(options)) for key in options), "status"]
    rows = [
        [run.path.name, *row, run.status, decimals(before), decimals(after)]
        for run, row, before, after in jobs[:_MAX_JOBS]
    ]
    print_table(Table(title, [*labels, "untrained", "trained"], rows, len(labels)), width=120)
    if len(jobs) > _MAX_JOBS:
        print(f"… and {len(jobs) - _MAX_JOBS} more")
    if is_ranked and len(monitors[0]) > 1:
        print(f"monitored: {', '.join(monitors[0])}")
    best, row, _, after = jobs[0]
    if is_ranked and after is not None:
        chosen = ", ".join(f"{key}={value}" for key, value in zip(options, row, strict=True))
        name = f"{best.path.name}{f' ({chosen})' if chosen else ''}"
        print(printable(f"the best job: {name}, model {best.path / 'best'}"))
    if monitors:
        command = f"python -m train.report {shlex.quote(str(folder))}"
        print(printable(f"tables, intervals and a page: {command}"))


def _monitored(run: Run, scores: Mapping[str, float]) -> float | None:
    complete = run.is_scored and run.monitor and all(key in scores for key in run.monitor)
    return statistics.fmean(scores[key] for key in run.monitor) if complete else None
