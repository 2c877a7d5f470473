"""Tables, comparisons and a page: `idiomtune report <run or multirun folder>… [output=<folder>]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from idiomtune.config.settings import ReportSettings
from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path, write_text
from idiomtune.io.outputs import check_output, reserved_output

if TYPE_CHECKING:
    from idiomtune.reports.frames import Group
    from idiomtune.reports.thresholds import Outcome, Threshold

_FILES = ("report.html", "table.md", "table.csv", "table.tex")
_BASELINE = "baseline"


def report(settings: ReportSettings) -> tuple[Path, Outcome | None]:
    """Print the tables, and write the files.

    Returns:
        The folder with the files, and whether the scores are within their margins, if they have some.

    Raises:
        UserError: if there is nothing to report, or the files cannot be written.
    """
    output, folders = settings.output, [user_path(folder, "run") for folder in settings.runs]
    overwrite = output is None or settings.overwrite
    for file in [output / name for name in _FILES] if output else ():
        check_output("output", file, overwrite=overwrite)
    # Pandas and matplotlib take seconds: not for --help and typos.
    from idiomtune.plugins.registry import load_extensions
    from idiomtune.reports import compare, frames, page, runs, score_tables, tables, thresholds

    load_extensions(settings.extensions)
    is_baseline = settings.against == _BASELINE
    against = None if is_baseline or not settings.against else user_path(settings.against, "against")
    paths, others = runs.find_runs(folders), runs.find_runs([against] if against else [])
    together = list(dict.fromkeys([*paths, *others]))
    read = runs.read_runs(together)
    separate = set(others).difference(paths)
    groups = frames.group_runs(read, separate=separate)
    notes = frames.notes_of(groups, read)
    if not groups:
        raise UserError("none of these runs has scores to report:\n  " + "\n  ".join(notes))
    chosen = others or paths
    firsts = [group for group in groups if any(run.path in chosen for run in group.runs)]
    if not firsts:
        raise UserError(f"against={against}: that run has no scores")
    first = None if is_baseline else firsts[0]
    compared = [compare.compare(group, first) for group in groups if first and group is not first]
    compared = [result for result in [*compared, *map(compare.compare, groups)] if result.differences]
    notes += compare.without_common_scores(groups, first, compared) if first else []

    judged, missing = _judge(groups, [] if is_baseline else firsts, settings.fail_below)
    notes += missing
    verdicts = compare.head_verdicts(groups, compared)
    verdicts += [thresholds.summary(name, of_group) for name, of_group in judged.items()]
    title = f"against {first.name if first else 'its untrained model'}"
    judgements = [thresholds.threshold_table(f"{name} {title}", rows) for name, rows in judged.items()]
    papers = [*judgements, *score_tables.paper_tables(groups)]
    all_notes = [*notes, *compare.comparison_notes(compared)]
    every = groups if settings.scores == "all" else ()
    printed = [*papers, *map(score_tables.group_table, every)]
    for result in compared:
        folds = [table for table in score_tables.detail_tables(result) if table.columns[0] == "fold"]
        printed += [score_tables.paired_table(result), *folds] if result.is_tested else []
    for table in [*printed, score_tables.untested_table(compared)]:
        if table.rows:
            tables.print_table(table)
    tables.print_notes(all_notes)
    for sentence in verdicts:
        print(printable(sentence))

    folder = output or _default_output(together, folders[0])
    contents = (
        page.page(groups, read, papers, compared, verdicts, notes),
        score_tables.as_markdown(groups, papers, compared, all_notes),
        score_tables.as_csv(groups, compared),
        tables.latex_document(papers, all_notes),
    )
    _write(folder, dict(zip(_FILES, contents, strict=True)), overwrite=overwrite)
    return folder, thresholds.worst([t for rows in judged.values() for t in rows]) if judged else None


def _judge(
    groups: Sequence[Group], references: Sequence[Group], margins: Mapping[str, float]
) -> tuple[dict[str, list[Threshold]], list[str]]:
    """Name of a group → the thresholds of its scores, and notes; empty without margins.

    Args:
        references: the groups of `against=`, of which there may be one; empty for the untrained models.
    """
    from idiomtune.reports.thresholds import thresholds_of

    judged: dict[str, list[Threshold]] = {}
    notes: list[str] = []
    if not margins:
        return judged, notes
    if len(references) > 1:
        names = "; ".join(group.name for group in references)
        raise UserError(f"against=: give runs of one recipe; these differ in more than the seed: {names}")
    for group in groups:
        if group not in references:
            judged[group.name], more = thresholds_of(group, references[0] if references else None, margins)
            notes += more
    if not judged:
        raise UserError("against=: there is no other run with scores to compare with that one")
    return judged, notes


def _default_output(paths: Sequence[Path], named: Path) -> Path:
    """A single run's own folder; else `report` in the folder of runs that was named first, or beside the run.

    Args:
        paths: the runs.
        named: on the command line, first.
    """
    if len(paths) == 1:
        return paths[0] if paths[0].is_dir() else paths[0].parent / "report"
    named = named.resolve()
    return (named.parent if named in paths else named) / "report"


def _write(folder: Path, contents: Mapping[str, str], *, overwrite: bool) -> None:
    """Write files, all of which are claimed first.

    Raises:
        UserError: if another file is in the way, or they cannot be written.
    """
    with ExitStack() as held:
        claims = [reserved_output("output", folder / n, overwrite=overwrite) for n in contents]
        files = [held.enter_context(claim) for claim in claims]
        for file, text in zip(files, contents.values(), strict=True):
            write_text(file, text)
