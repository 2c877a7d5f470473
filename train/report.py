"""Tables, comparisons and a page: `python -m train.report <run or multirun folder>… [output=<folder>]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from train.cli.plain import run_plain
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

_OPTIONS = ("output", "against", "group", "scores", "modes", "split", "published", "extensions")

# What is made instead of a report → the options that it takes.
_TAKES = {
    "modes": {"modes", "split", "extensions"},
    "published": {"published", "output", "extensions"},
    "": {"output", "against", "group", "scores", "extensions"},
}


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    folders: list[Path]
    output: Path | None
    against: Path | None
    by_seed: bool
    all_scores: bool
    modes: tuple[str, str] | None
    split: str
    published: str | None
    extensions: list[str]


def parse(arguments: Sequence[str]) -> Arguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or where no folder is named.
    """
    folders: list[Path] = []
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in _OPTIONS:
            given[key] = value
        elif (equals and not Path(argument).exists()) or argument.startswith("-"):
            raise UserError(f"{argument}: unknown option; there are {', '.join(f'{o}=' for o in _OPTIONS)}")
        else:
            folders.append(expanded(argument, "run"))
    kind = next((name for name in _TAKES if name in given), "")
    if idle := [f"{key}=" for key in given if key not in _TAKES[kind]]:
        what = f"{kind}=" if kind else "a report"
        raise UserError(f"{', '.join(idle)}: does nothing for {what}: leave it out")
    options = {"group": "seeds", "scores": "main"} | given
    for key, allowed in (("group", ("seeds", "none")), ("scores", ("main", "all"))):
        if options[key] not in allowed:
            raise UserError(f"{key}={options[key]}: is to be {' or '.join(allowed)}")
    if not folders and "published" not in options:
        raise UserError("name at least one run folder, or a folder of runs (--help says more)")
    output, against = (expanded(options[k], k) if options.get(k) else None for k in ("output", "against"))
    extensions = [name for name in options.get("extensions", "").strip("[]").split(",") if name]
    by_seed, all_scores = options["group"] == "seeds", options["scores"] == "all"
    modes = options.get("modes", "").split(",") if "modes" in options else []
    if modes and (len(modes) != 2 or not all(modes)):
        raise UserError(f"modes={options['modes']}: name two modes, as modes=experts_text,caption")
    return Arguments(
        folders=folders,
        output=output,
        against=against,
        by_seed=by_seed,
        all_scores=all_scores,
        modes=(modes[0], modes[1]) if modes else None,
        split=options.get("split", "train_cv"),
        published=options.get("published"),
        extensions=extensions,
    )


def report(arguments: Arguments) -> Path:
    """Print the tables, and write the files.

    Returns:
        The folder with the files.

    Raises:
        UserError: if there is nothing to report, or the files cannot be written.
    """
    # Scipy and pydantic take a second: not for --help and slips.
    from train.reports.compare import compare_groups, compare_to_untrained, paired_notes
    from train.reports.groups import data_notes, group_runs
    from train.reports.head import head_verdicts, not_counted, without_common_scores
    from train.reports.page import PAGE, page
    from train.reports.runs import find_runs, read_runs, sample_note
    from train.reports.tables import as_csv, latex_document, paper_tables
    from train.reports.terminal import print_notes, print_paired, print_scores, print_table, print_untested
    from train.reports.text import as_markdown

    named = [*arguments.folders, *([arguments.against] if arguments.against else [])]
    paths, notes = find_runs(named)
    runs = read_runs(paths)
    scored = [run for run in runs if run.is_scored]
    for run in scored:
        notes += [f"{run.name} ({run.status}): {note}" for note in run.notes]
    left_out = not_counted(runs)
    if not scored:
        raise UserError("none of these runs has scores to report:\n  " + "\n  ".join([*left_out, *notes]))
    groups = group_runs(scored, by_seed=arguments.by_seed)
    notes += [note for group in groups for note in group.notes()] + data_notes(scored)
    notes = [*sample_note(scored), *notes]

    first = groups[0]
    if arguments.against is not None:
        chosen = find_runs([arguments.against])[0]
        first = next((g for g in groups if any(run.path in chosen for run in g.runs)), first)
        if not any(run.path in chosen for run in first.runs):
            raise UserError(f"against={arguments.against}: that run has no scores")
    compared = [compare_groups(group, first) for group in groups if group is not first]
    compared += [compare_to_untrained(group) for group in groups if any(run.baseline for run in group.runs)]
    compared = [paired for paired in compared if paired.differences]
    notes += without_common_scores(groups, first, compared)

    tables = paper_tables(groups)
    for table in tables:
        print_table(table)
    if arguments.all_scores:
        for group in groups:
            print_scores(group)
    for paired in compared:
        if paired.is_tested:
            print_paired(paired)
    print_untested([paired for paired in compared if not paired.is_tested])
    print_notes(list(dict.fromkeys([*notes, *left_out, *paired_notes(compared)])))
    for sentence in head_verdicts(groups, compared):
        print(printable(sentence))

    folder = arguments.output or _default_output(paths)
    contents = {
        "table.md": as_markdown(groups, tables, compared, [*notes, *left_out]),
        "table.csv": as_csv(groups, compared),
        "table.tex": latex_document(tables, [*notes, *left_out]),
        PAGE: page(groups, runs, compared, notes),
    }
    _write(folder, contents, known_by=PAGE)
    return folder


def _write(folder: Path, contents: Mapping[str, str], known_by: str) -> None:
    """Write files, all of which are claimed first; only those of an earlier report are replaced.

    Args:
        known_by: the file by which that is known.

    Raises:
        UserError: if another file is in the way, or they cannot be written.
    """
    from train.io.claims import claimed
    from train.io.files import write_text

    overwrite = (folder / known_by).is_file() or None
    with ExitStack() as held:
        files = [held.enter_context(claimed("output", folder / n, overwrite=overwrite)) for n in contents]
        for file, text in zip(files, contents.values(), strict=True):
            write_text(file, text)


def show_published(benchmark: str, folders: Sequence[Path], output: Path | None) -> None:
    """Print our scores beside the published ones; with `output` also into `published.md` there.

    Raises:
        UserError: if there are no published figures, a folder holds no run, or the file cannot be written.
    """
    from train.reports.published import beside_published
    from train.reports.runs import find_runs, read_runs
    from train.reports.tables import markdown
    from train.reports.terminal import print_notes, print_table

    paths, missing = find_runs(folders)
    tables, notes = beside_published(benchmark, [run for run in read_runs(paths) if run.is_scored])
    for table in tables:
        print_table(table)
    print_notes([*missing, *notes])
    if output is not None:
        parts = [f"{table.title}\n\n{markdown(table)}" for table in tables]
        _write(output, {"published.md": "\n\n".join([*parts, *notes]) + "\n"}, "published.md")


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

    load_extensions(parsed.extensions)
    if parsed.modes is not None:
        from train.reports.modes import mode_table, read_values

        print(printable(mode_table(read_values(parsed.folders), *parsed.modes, parsed.split)))
    elif parsed.published is not None:
        show_published(parsed.published, parsed.folders, parsed.output)
    else:
        print(printable(str(report(parsed))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
