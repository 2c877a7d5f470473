"""Tables, comparisons and a page: `idiomtune report <run or multirun folder>… [output=<folder>]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path, write_text
from idiomtune.io.outputs import check_output, reserved_output
from idiomtune.programs.failures import names_and_options, run_plain, split_names

HELP = """Compare finished runs.

  idiomtune report <run or multirun folder>… [option=value …]

Runs that differ only in their seed are one row, mean ± standard deviation; the folds of a cross-validation
are averaged within each seed. A JSON file that idiomtune evaluate wrote (output=) is a separate row.

output=<folder>     where report.html and table.md, .csv, .tex go; by default the run's own folder; for
                    several runs report/ beside the first, or in the first folder of runs
against=<folder>    compare every other group with this run's group, query by query; by default with the first
overwrite=true      replace the files in output=; those in the default folder are always replaced
group=seeds|none    none: each run separately
scores=main|all     all: print every score, not only the papers' tables (files always have all)
extensions=<module>[,<module>…]  your own modules with benchmarks of these runs"""

_OPTIONS = ("output", "overwrite", "against", "group", "scores", "extensions")
_FILES = ("report.html", "table.md", "table.csv", "table.tex")
# The first is the default.
_VALUES = {"group": ("seeds", "none"), "scores": ("main", "all"), "overwrite": ("false", "true")}


@dataclass(frozen=True)
class ReportArguments:
    """The command line.

    Attributes:
        options: as they were given; the last one counts.
    """

    folders: list[Path]
    options: Mapping[str, str]

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
    return ReportArguments([user_path(folder, "run") for folder in folders], options)


def report(arguments: ReportArguments) -> Path:
    """Print the tables, and write the files.

    Returns:
        The folder with the files.

    Raises:
        UserError: if there is nothing to report, or the files cannot be written.
    """
    output = arguments.path("output")
    overwrite = output is None or arguments.options.get("overwrite") == "true"
    for file in [output / name for name in _FILES] if output else ():
        check_output("output", file, overwrite=overwrite)
    # Pandas and matplotlib take seconds: not for --help and typos.
    from idiomtune.declarations.registry import load_extensions
    from idiomtune.reports import compare, frames, page, runs, score_tables, tables

    load_extensions(split_names(arguments.options.get("extensions", "")))
    against = arguments.path("against")
    paths, read_notes = runs.find_runs([*arguments.folders, *([against] if against else [])])
    read = runs.read_runs(paths)
    groups = frames.group_runs(read, by_seed=arguments.options.get("group") != "none")
    notes = frames.notes_of(groups, read, read_notes)
    if not groups:
        raise UserError("none of these runs has scores to report:\n  " + "\n  ".join(notes))
    chosen = runs.find_runs([against])[0] if against else paths
    first = next((group for group in groups if any(run.path in chosen for run in group.runs)), None)
    if first is None:
        raise UserError(f"against={against}: that run has no scores")
    compared = [compare.compare(group, first) for group in groups if group is not first]
    compared = [result for result in [*compared, *map(compare.compare, groups)] if result.differences]
    notes += compare.without_common_scores(groups, first, compared)
    all_notes = [*notes, *compare.comparison_notes(compared)]

    papers = score_tables.paper_tables(groups)
    every = groups if arguments.options.get("scores") == "all" else ()
    printed = [*papers, *map(score_tables.group_table, every)]
    for result in compared:
        folds = [table for table in score_tables.detail_tables(result) if table.columns[0] == "fold"]
        printed += [score_tables.paired_table(result), *folds] if result.is_tested else []
    for table in [*printed, score_tables.untested_table(compared)]:
        if table.rows:
            tables.print_table(table)
    tables.print_notes(all_notes)
    for sentence in compare.head_verdicts(groups, compared):
        print(printable(sentence))

    folder = output or _default_output(paths, arguments.folders[0])
    contents = (
        page.page(groups, read, compared, notes),
        score_tables.as_markdown(groups, papers, compared, all_notes),
        score_tables.as_csv(groups, compared),
        tables.latex_document(papers, all_notes),
    )
    _write(folder, dict(zip(_FILES, contents, strict=True)), overwrite=overwrite)
    return folder


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
    print(printable(str(report(parse(arguments)))))
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)
