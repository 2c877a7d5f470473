"""Tables, comparisons and a page: `idiomtune report <run or multirun folder>… [output=<folder>]`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path, write_text
from idiomtune.io.outputs import check_output, reserved_output
from idiomtune.programs.failures import MISTAKE, names_and_options, run_plain, split_names

if TYPE_CHECKING:
    from idiomtune.reports.frames import Group
    from idiomtune.reports.thresholds import Outcome, Threshold

HELP = """Compare finished runs.

  idiomtune report <run or multirun folder>… [option=value …]

Runs that differ only in their seed are one row, mean ± standard deviation; the folds of a cross-validation
are averaged within each seed. A JSON file that idiomtune evaluate wrote (output=) is a separate row.

output=<folder>     where report.html and table.md, .csv, .tex go; by default the run's own folder; for
                    several runs report/ beside the first, or in the first folder of runs
against=<folder>    compare every other group with this run's group, query by query; by default the first's;
                    baseline: each group only with its own model before training
fail_below=[<score>:]<margin>  the exit status says whether a score is worse than that of against= by more
                    than the margin, in its own unit; without a score: the same for all compared scores
                    but ranks and errors. Also several of them
overwrite=true      replace the files in output=; those in the default folder are always replaced
group=seeds|none    none: each run separately
scores=main|all     all: print every score, not only the papers' tables (files always have all)
extensions=<module>[,<module>…]  your own modules with benchmarks of these runs

Exit status with fail_below=: 0 all pass; 1 a score fails; 3 it cannot be told: the margin is within the 95%
interval of the difference (idioms, compounds, expressions or groups are resampled). 2 the command is wrong,
or the program failed."""

_OPTIONS = ("output", "overwrite", "against", "fail_below", "group", "scores", "extensions")
_FILES = ("report.html", "table.md", "table.csv", "table.tex")
# The first is the default.
_VALUES = {"group": ("seeds", "none"), "scores": ("main", "all"), "overwrite": ("false", "true")}
_BASELINE = "baseline"


@dataclass(frozen=True)
class ReportArguments:
    """The command line.

    Attributes:
        options: as they were given; the last one counts.
        margins: score key ("" for all) → by how much it may be worse.
    """

    folders: list[Path]
    options: Mapping[str, str]
    margins: Mapping[str, float]

    def path(self, option: str) -> Path | None:
        """An option that is a path."""
        return user_path(self.options[option], option) if self.options.get(option) else None


def parse(arguments: Sequence[str]) -> ReportArguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or if no folder is given.
    """
    folders, values_of = names_and_options(arguments, _OPTIONS)
    options = {option: values[-1] for option, values in values_of.items()}
    for option, allowed in _VALUES.items():
        if options.get(option, allowed[0]) not in allowed:
            raise UserError(f"{option}={options[option]}: must be {' or '.join(allowed)}")
    if not folders:
        raise UserError("give at least one run folder, or a folder of runs (see --help)")
    margins = _margins(values_of.get("fail_below", ()))
    if margins and not options.get("against"):
        raise UserError("fail_below= needs against=<run>, or against=baseline")
    return ReportArguments([user_path(folder, "run") for folder in folders], options, margins)


def _margins(values: Iterable[str]) -> dict[str, float]:
    """Score key → margin."""
    margins: dict[str, float] = {}
    for value in values:
        key, _, number = value.rpartition(":")
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not 0 <= margin < math.inf:
            raise UserError(f"fail_below={value}: must be [<score>:]<number of 0 or more>")
        if key in margins:
            raise UserError(f"fail_below={value}: {key or 'the margin of all scores'} is given twice")
        margins[key] = margin
    return margins


def report(arguments: ReportArguments) -> tuple[Path, Outcome | None]:
    """Print the tables, and write the files.

    Returns:
        The folder with the files, and whether the scores are within their margins, if they have some.

    Raises:
        UserError: if there is nothing to report, or the files cannot be written.
    """
    output = arguments.path("output")
    overwrite = output is None or arguments.options.get("overwrite") == "true"
    for file in [output / name for name in _FILES] if output else ():
        check_output("output", file, overwrite=overwrite)
    # Pandas and matplotlib take seconds: not for --help and typos.
    from idiomtune.declarations.registry import load_extensions
    from idiomtune.reports import compare, frames, page, runs, score_tables, tables, thresholds

    load_extensions(split_names(arguments.options.get("extensions", "")))
    is_baseline = arguments.options.get("against") == _BASELINE
    against = None if is_baseline else arguments.path("against")
    paths, read_notes = runs.find_runs(arguments.folders)
    others, more_notes = runs.find_runs([against] if against else [])
    read = runs.read_runs(list(dict.fromkeys([*paths, *others])))
    separate = set(others).difference(paths)
    groups = frames.group_runs(read, by_seed=arguments.options.get("group") != "none", separate=separate)
    notes = frames.notes_of(groups, read, [*read_notes, *more_notes])
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

    judged, missing = _judge(groups, [] if is_baseline else firsts, arguments.margins)
    notes += missing
    verdicts = compare.head_verdicts(groups, compared)
    verdicts += [thresholds.summary(name, of_group) for name, of_group in judged.items()]
    title = f"against {first.name if first else 'its untrained model'}"
    judgements = [thresholds.threshold_table(f"{name} {title}", rows) for name, rows in judged.items()]
    papers = [*judgements, *score_tables.paper_tables(groups)]
    all_notes = [*notes, *compare.comparison_notes(compared)]
    every = groups if arguments.options.get("scores") == "all" else ()
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

    folder = output or _default_output(paths, arguments.folders[0])
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


def _run(arguments: Sequence[str]) -> int:
    folder, outcome = report(parse(arguments))
    print(printable(str(folder)))
    if outcome is None:
        return 0
    from idiomtune.reports.thresholds import STATUS

    return STATUS[outcome]


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    # Python's status would be 1, which says that a score fails.
    return run_plain(_run, arguments, HELP, unexpected=MISTAKE)
