"""What the terminal shows at the end of a run or an evaluation: one screen; all scores on request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from train.io.files import write_text
from train.reports.compare import Difference, Paired, compare_to_untrained
from train.reports.console import coloured, print_comparison, print_scores, print_table
from train.reports.groups import group_runs
from train.reports.head import beats_untrained, verdict_in_words
from train.reports.page import PAGE, page
from train.reports.runs import Run, read_run
from train.reports.scorecard import decimals
from train.reports.tables import paper_tables, show_interval, verdict
from train.reports.terminal import print_notes
from train.reports.terminal import print_table as print_paper_table

log = logging.getLogger(__name__)


def show_finished_run(folder: Path, *, all_scores: bool) -> None:
    """A run's own page, in its folder, and its last screen. What goes wrong is a warning: the run is done."""
    try:
        run = read_run(folder, folder.name)
        groups = group_runs([run]) if run.is_scored else []
        compared = [compare_to_untrained(group) for group in groups if run.baseline]
        write_text(folder / PAGE, page(groups, [run], compared, []))
        _show_run(run, compared[0] if compared else None, all_scores=all_scores)
    except Exception as error:  # nothing about a page may spoil a finished run
        log.warning("%s could not be written (%s: %s)", folder / PAGE, type(error).__name__, error)


def _show_run(run: Run, paired: Paired | None, *, all_scores: bool) -> None:
    """A finished run: the monitored scores with intervals, a table a benchmark, where everything is.

    Args:
        paired: the comparison with the untrained model, if it has scores.
    """
    differences = {d.key: d for d in paired.differences} if paired is not None else {}
    step = str(run.meta.get("checkpoint", "")).removeprefix("step_")
    title = f"monitored, untrained → best checkpoint (step {step})"
    rows = []
    for key in run.monitor:
        if key in run.scores:
            rows.append(_monitored(key, run, differences.get(key)))
    if rows:
        figures = ["untrained", "trained", "difference", "95% by query", "verdict"]
        print_table(title, ["score"], figures, rows, width=140)
    if all_scores:
        print_comparison(run.baseline, run.scores, "all scores")
    else:
        for table in paper_tables(group_runs([run])):
            print_paper_table(table)
    # What was scored, then what there is to know of it.
    print_notes(str(run.meta.get("data", "")).split("; ")[1:])
    for note in run.notes:
        log.warning("%s", note)
    said = beats_untrained(run.monitor, run.scores, run.baseline, differences)
    # Only a trained model has some scores.
    log.info("%s", f"the best checkpoint {said}" if said else f"monitored: {', '.join(run.monitor)}")
    log.info("the best model: %s; its page: %s", run.path / "best", run.path / PAGE)
    log.info("all scores: scores.json there, or python -m train.report %s scores=all", run.path)


def show_scores(scores: Mapping[str, float], model: str, notes: Sequence[str], *, all_scores: bool) -> None:
    """The scores of an evaluation: a table a benchmark, or every score."""
    if all_scores:
        print_scores(scores, ", ".join([model, *notes]))
        return
    run = Run(Path(), model, "scored", scores=scores, meta={"model": model})
    tables = paper_tables(group_runs([run]))
    for table in tables:
        print_paper_table(table)
    print_notes(notes)
    log.info("%d scores in all: scores=all prints them, output=<file> writes them", len(scores))


def _monitored(key: str, run: Run, difference: Difference | None) -> list[object]:
    after, before = run.scores[key], run.baseline.get(key)
    change = None if before is None else after - before
    said = "" if difference is None else verdict(difference)
    return [
        key,
        decimals(before),
        decimals(after),
        coloured(decimals(change, "+"), said),
        show_interval(None if difference is None else difference.by_query),
        coloured(verdict_in_words(difference), said),
    ]
