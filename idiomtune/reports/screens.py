"""The last screen of a run, an evaluation or a sweep."""

from __future__ import annotations

import logging
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from idiomtune.errors import UserError
from idiomtune.io.files import list_names, one_line, printable, write_text
from idiomtune.plugins.score import ScoreTable
from idiomtune.reports.benchmark_report import NUM_FIRST, BenchmarkReport, Example
from idiomtune.reports.compare import (
    UNTRAINED,
    Difference,
    beats_untrained,
    compare,
    compare_monitored,
    head_verdicts,
)
from idiomtune.reports.frames import group_runs, notes_of, options_of, short_key
from idiomtune.reports.runs import RunResults, find_runs, read_run, read_runs
from idiomtune.reports.score_tables import (
    changeable,
    changes,
    decimals,
    paper_tables,
    scorecard_tables,
    show_interval,
)
from idiomtune.reports.tables import Table, print_notes, print_table

log = logging.getLogger(__name__)

_MAX_JOBS = 30
_MAX_WORSE = 3
_LINE = 100  # columns


def show_finished_run(folder: Path, *, all_scores: bool) -> None:
    """A run's own page, in its folder, and its last screen. What goes wrong is a warning: the run is done.

    The screen has the monitored scores with intervals, what became worse, and what to do next.
    """
    try:
        from idiomtune.reports.page import (
            PAGE,
            find_greatest_gain,
            page,
        )  # with matplotlib, which takes a second

        run = read_run(folder, folder.name)
        groups = group_runs([run])
        compared = [compare(group) for group in groups if run.baseline]
        papers, verdicts = paper_tables(groups), head_verdicts(groups, compared)
        write_text(folder / PAGE, page(groups, [run], papers, compared, verdicts, notes_of(groups, [run])))
        differences = [d for group in groups for d in compare_monitored(group, compared)]
        tables = [_monitored_table(run, differences)]
        if all_scores:
            tables.append(changes(changeable(run.scores), run.baseline, "all scores", ("before", "after")))
        elif all(key.startswith("own_") for key in run.monitor):
            tables += papers  # at which rank something is found
        for table in tables:
            if table.rows:
                print_table(table)
        if gain := find_greatest_gain(run):
            print("\n".join(_format_before_and_after(*gain)))
        # What was scored, then what there is to know of it.
        print_notes(str(run.meta.get("data", "")).split("; ")[1:])
        for note in run.notes:
            log.warning("%s", note)
        if verdict := beats_untrained(differences):
            log.info("the best checkpoint %s", verdict)
        else:  # only a trained model has some scores
            log.info("monitored: %s", ", ".join(run.monitor))
        every = [d for comparison in compared for d in comparison.differences]
        if worse := [d.key for d in every if d.verdict == "worse" and d.key not in run.monitor]:
            log.info("worse than untrained: %s", list_names(worse, _MAX_WORSE))
        near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        log.info("the best model: %s; its page: %s", near / "best", near / PAGE)
        name = shlex.quote(str(near))
        log.info("next: idiomtune explore %s   # what it finds, before and after", name)
        log.info("next: idiomtune report %s scores=all   # every score", name)
        log.info("next: idiomtune push %s repo_id=<user/name> dry_run=true   # the model card", name)
    except Exception as error:  # nothing about a page may spoil a finished run
        log.warning("%s could not be written (%s: %s)", folder / "report.html", type(error).__name__, error)


def _format_before_and_after(report: BenchmarkReport, example: Example) -> list[str]:
    """A query, and what both models find first: each answer right (✓) or wrong (✗)."""
    source = f" ({report.subtitle})" if report.subtitle else ""
    noun = f"{example.kind} query" if example.kind else "query"
    query = wrap(one_line(f"{example.topic}: {example.text}"), _LINE - 2, max_lines=2, placeholder=" …")
    lines = [f"Before and after: the {noun} that gained most{source}", *(f"  {line}" for line in query)]
    for model, answers in ((UNTRAINED, example.untrained_answers), ("trained", example.answers)):
        lines.append(f"The {model} model finds first:")
        for answer in answers[:NUM_FIRST]:
            label = f"{answer.label}: " if answer.label else ""
            text = one_line(f"{'✓' if answer.is_right else '✗'} {label}{answer.text}")
            rows = wrap(text, _LINE - 4, max_lines=2, placeholder=" …")
            lines += [f"  {rows[0]}", *(f"    {row}" for row in rows[1:])]
    return lines


def _monitored_table(run: RunResults, differences: Sequence[Difference]) -> Table:
    """The scores that chose the checkpoint; those that only a trained model has are without a difference."""
    monitored = run.scores.only(run.monitor)
    scores = changes(monitored, run.baseline)
    tested = {d.key: d for d in differences}
    shown = [tested.get(key, Difference(score, 0, 0)) for key, score in monitored.parts.items()]
    step = str(run.meta.get("checkpoint", "")).removeprefix("step_")
    return Table(
        f"monitored, untrained → best checkpoint (step {step})",
        [*scores.columns, "95% by query", "verdict"],
        [
            [*row, show_interval(d.by_query), d.verdict_text]
            for row, d in zip(scores.rows, shown, strict=True)
        ],
        verdicts=[d.verdict for d in shown],
    )


def show_scores(scores: ScoreTable, model: str, notes: Sequence[str], *, all_scores: bool) -> None:
    """The scores of an evaluation: a table a benchmark, or every score."""
    if all_scores:
        rows = [[key, decimals(value)] for key, value in scores.items()]
        print_table(Table(", ".join([model, *notes]), ["score", "value"], rows))
        return
    for table in scorecard_tables(scores, model.removeprefix("sentence-transformers/")):
        print_table(table)
    print_notes(notes)
    log.info("%d scores in all: scores=all prints them, output=<file> writes them", len(scores))


# --------------------------------------------------------------------------------------------- sweeps


def show_finished_sweep(folder: Path) -> None:
    """The jobs of a sweep, the best monitored score first; nothing if fewer than two left a run."""
    try:
        runs = read_runs(find_runs([folder]))
    except UserError:  # no job was scored
        return
    if len(runs) < 2:
        return
    options, _ = options_of(runs, repetitions=True)
    monitors = list(dict.fromkeys(tuple(run.monitor) for run in runs if run.is_scored))
    is_ranked = len(monitors) == 1 and bool(monitors[0])  # else these are other scores in each job
    jobs = [
        (run, row, _monitored_rows(run, run.baseline), _monitored_rows(run, run.scores))
        for run, row in zip(runs, options.to_numpy().tolist(), strict=True)
    ]
    title = f"{len(runs)} jobs"
    if is_ranked:
        jobs.sort(key=lambda job: (job[3] is None, -(job[3] or 0.0)))  # equal ones in their order
        score_name = (
            monitors[0][0] if len(monitors[0]) == 1 else f"the mean of {len(monitors[0])} monitored scores"
        )
        title += f" by {score_name}"
    elif monitors:
        title += ", each by the scores that it monitors"
    labels = ["job", *(short_key(key, list(options)) for key in options), "status"]
    rows = [
        [run.path.name, *row, run.status, decimals(before), decimals(after)]
        for run, row, before, after in jobs[:_MAX_JOBS]
    ]
    print_table(Table(title, [*labels, UNTRAINED, "trained"], rows, len(labels)), width=120)
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
        command = f"idiomtune report {shlex.quote(str(folder))}"
        print(printable(f"tables, intervals and a page: {command}"))


def _monitored_rows(run: RunResults, scores: Mapping[str, float]) -> float | None:
    complete = run.is_scored and run.monitor and all(key in scores for key in run.monitor)
    return statistics.fmean(scores[key] for key in run.monitor) if complete else None
