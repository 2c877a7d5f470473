"""Tables, comparisons and a page: `python -m train.report <run or multirun folder>… [output=<folder>]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from train.cli.plain import names_in, paths_and_options, run_plain
from train.errors import UserError
from train.io.paths import expanded
from train.io.text import printable

HELP = """Compare finished runs.

  python -m train.report <run or multirun folder>… [option=value …]

Runs that differ only in their seed are one row, mean ± standard deviation; the folds of a cross-validation
are averaged within each seed. A JSON file that train.evaluate wrote (output=) is a row of its own.

output=<folder>     where report.html and table.md, .csv, .tex go; by default the run's own folder, of several
                    runs <the folder they share>/report
against=<folder>    compare every other group with this run's group, query by query; by default with the first
group=seeds|none    none: each run by itself
scores=main|all     all: print every score, not the papers' tables alone (files always have all)
published=<name>    instead of a report: the scores of the named runs on this benchmark (epsilon) beside those
                    that its paper prints of the same models, and the commands of those that are missing
modes=<a>,<b>       instead of a report: two modes of a benchmark's scores in the same runs, query by
                    query, as modes=experts_text,caption (AdMIRe) or modes=sentence,span (IdioLink);
                    split=<name>: of this split (train_cv by default)
extensions=<module>[,<module>…]  modules of your own that bring benchmarks of these runs"""

# What is made instead of a report → the options that it takes.
_TAKES = {
    "modes": {"modes", "split", "extensions"},
    "published": {"published", "output", "extensions"},
    "": {"output", "against", "group", "scores", "extensions"},
}
_VALUES = {"group": ("seeds", "none"), "scores": ("main", "all")}  # the first is the default


@dataclass(frozen=True)
class Arguments:
    """The command line.

    Attributes:
        kind: what is made: `modes`, `published`, or "" for a report.
        options: as they were given; the last one counts.
    """

    folders: list[Path]
    kind: str
    options: Mapping[str, str]

    def path(self, option: str) -> Path | None:
        """An option that is a path."""
        return expanded(self.options[option], option) if self.options.get(option) else None


def parse(arguments: Sequence[str]) -> Arguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or if no folder is given.
    """
    known = list(dict.fromkeys(option for options in _TAKES.values() for option in sorted(options)))
    folders, given = paths_and_options(arguments, known)
    kind = next((name for name in _TAKES if name in given), "")
    if idle := [f"{option}=" for option in given if option not in _TAKES[kind]]:
        raise UserError(
            f"{', '.join(idle)}: has no effect with {f'{kind}=' if kind else 'a report'}: leave it out"
        )
    parsed = Arguments(folders, kind, {option: values[-1] for option, values in given.items()})
    for option, allowed in _VALUES.items():
        if (value := parsed.options.get(option, allowed[0])) not in allowed:
            raise UserError(f"{option}={value}: must be {' or '.join(allowed)}")
    if not folders and kind != "published":
        raise UserError("name at least one run folder, or a folder of runs (--help says more)")
    if kind == "modes" and len(names_in(parsed.options["modes"])) != 2:
        raise UserError(f"modes={parsed.options['modes']}: name two modes, as modes=experts_text,caption")
    return parsed


def report(arguments: Arguments) -> Path:
    """Print the tables, and write the files.

    Returns:
        The folder with the files.

    Raises:
        UserError: if there is nothing to report, or the files cannot be written.
    """
    # Pandas, scipy and matplotlib take seconds: not for --help and slips.
    from train.reports.compare import compare, comparison_notes
    from train.reports.frames import data_notes, group_runs
    from train.reports.page import PAGE, page
    from train.reports.runs import find_runs, read_runs
    from train.reports.score_tables import (
        as_csv,
        as_markdown,
        detail_tables,
        group_table,
        paired_table,
        paper_tables,
        untested_table,
    )
    from train.reports.tables import latex_document, print_notes, print_table
    from train.reports.verdicts import head_verdicts, not_counted, without_common_scores

    against = arguments.path("against")
    paths, notes = find_runs([*arguments.folders, *([against] if against else [])])
    runs = read_runs(paths)
    scored = [run for run in runs if run.is_scored]
    notes += [f"{run.name} ({run.status}): {note}" for run in scored for note in run.notes]
    if not scored:
        reasons = [*not_counted(runs), *notes]
        raise UserError("none of these runs has scores to report:\n  " + "\n  ".join(reasons))
    groups = group_runs(scored, by_seed=arguments.options.get("group") != "none")
    chosen = find_runs([against])[0] if against else paths
    first = next((group for group in groups if any(run.path in chosen for run in group.runs)), None)
    if first is None:
        raise UserError(f"against={against}: that run has no scores")
    compared = [compare(group, first) for group in groups if group is not first]
    compared = [one for one in [*compared, *map(compare, groups)] if one.differences]
    notes = [*data_notes(scored), *notes, *(note for group in groups for note in group.notes())]
    notes += without_common_scores(groups, first, compared)
    all_notes = list(dict.fromkeys([*notes, *not_counted(runs), *comparison_notes(compared)]))

    tables = paper_tables(groups)
    shown = [*tables, *(map(group_table, groups) if arguments.options.get("scores") == "all" else ())]
    for one in compared:
        folds = [table for table in detail_tables(one) if table.columns[0] == "fold"]
        shown += [paired_table(one), *folds] if one.is_tested else []
    untested = untested_table(compared)
    for table in [*shown, *([untested] if untested.rows else [])]:
        print_table(table)
    print_notes(all_notes)
    for sentence in head_verdicts(groups, compared):
        print(printable(sentence))

    folder = arguments.path("output") or _default_output(paths)
    contents = {
        "table.md": as_markdown(groups, tables, compared, all_notes),
        "table.csv": as_csv(groups, compared),
        "table.tex": latex_document(tables, all_notes),
        PAGE: page(groups, runs, compared, notes),
    }
    _write(folder, contents, replaces=PAGE)
    return folder


def _write(folder: Path, contents: Mapping[str, str], replaces: str) -> None:
    """Write files, all of which are claimed first.

    Args:
        replaces: the file that shows that the folder has an earlier report, which is replaced.

    Raises:
        UserError: if another file is in the way, or they cannot be written.
    """
    from train.io.claims import claimed
    from train.io.files import write_text

    overwrite = (folder / replaces).is_file() or None
    with ExitStack() as held:
        files = [held.enter_context(claimed("output", folder / n, overwrite=overwrite)) for n in contents]
        for file, text in zip(files, contents.values(), strict=True):
            write_text(file, text)


def show_published(arguments: Arguments) -> None:
    """Print our scores and the published ones; with `output` also into `published.md` there.

    Raises:
        UserError: if there are no published figures, a folder holds no run, or the file cannot be written.
    """
    from train.reports.published import published_tables
    from train.reports.runs import find_runs, read_runs
    from train.reports.tables import markdown, print_notes, print_table

    paths, notes = find_runs(arguments.folders)
    runs = [run for run in read_runs(paths) if run.is_scored]
    tables, more = published_tables(arguments.options["published"], runs)
    for table in tables:
        print_table(table)
    print_notes([*notes, *more])
    if (output := arguments.path("output")) is not None:
        parts = [f"{table.title}\n\n{markdown(table)}" for table in tables]
        _write(output, {"published.md": "\n\n".join([*parts, *more]) + "\n"}, "published.md")


def _default_output(paths: Sequence[Path]) -> Path:
    """A single run's own folder; else `report` in the folder that all have in common."""
    folders = [path if path.is_dir() else path.parent for path in paths]
    if len(paths) == 1:
        return folders[0] if paths[0].is_dir() else folders[0] / "report"
    common = Path(os.path.commonpath([folder.parent for folder in folders]))
    if common == Path(common.anchor):
        raise UserError("the runs have no folder in common: name one for the report with output=")
    return common / "report"


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    from train.declarations.registry import load_extensions  # heavy: after the options are checked

    load_extensions(names_in(parsed.options.get("extensions", "")))
    if parsed.kind == "modes":
        from train.reports.compare import compare_modes
        from train.reports.runs import find_runs, read_runs

        ours, theirs = names_in(parsed.options["modes"])
        runs = read_runs(find_runs(parsed.folders)[0])
        print(printable(compare_modes(runs, ours, theirs, parsed.options.get("split", "train_cv"))))
    elif parsed.kind == "published":
        show_published(parsed)
    else:
        print(printable(str(report(parsed))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
