"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from train.declarations.registry import Verdict
from train.io.text import printable
from train.reports.compare import Paired
from train.reports.console import coloured
from train.reports.console import print_table as print_rows
from train.reports.gate import Check
from train.reports.groups import Group
from train.reports.scorecard import decimals, group_rows
from train.reports.tables import PAIRED_HEADS, Table, fold_table, paired_cells, show_interval, verdict

_WIDTH = 160


def print_table(table: Table) -> None:
    """Scores of groups beside the untrained model's."""
    figures = [f"{above}\n{name}".strip() for above, name in table.columns]
    rows = [[*labels, *map(table.text, values)] for labels, values in table.rows]
    print_rows(table.title, table.labels, figures, rows, width=_WIDTH)


def print_scores(group: Group) -> None:
    """Every score of a group, a line each."""
    rows = []
    for row in group_rows(group):
        untrained, mean, difference = row.cells
        change = coloured(difference, row.verdict)
        rows.append([row.key, untrained, mean, decimals(row.std), row.num_seeds, change])
    figures = ["untrained", "mean", "± std", "seeds", "difference"]
    print_rows(f"{group.name}: {group.summary}", ["score"], figures, rows, width=_WIDTH)


def print_paired(paired: Paired) -> None:
    """A comparison, a line a score."""
    rows = []
    for difference in paired.differences:
        key, ours, theirs, change, *tests = paired_cells(difference)
        rows.append([key, ours, theirs, coloured(change, verdict(difference)), *tests])
    title = f"{paired.ours} − {paired.theirs}"
    print_rows(title, ["score"], ["ours", "theirs", *PAIRED_HEADS], rows, width=_WIDTH)
    heads, by_fold = fold_table(paired)
    if by_fold:
        print_rows(f"{title}, fold by fold", heads[:1], heads[1:], by_fold, width=_WIDTH)


def print_untested(compared: Sequence[Paired]) -> None:
    """All comparisons by means alone, in one table."""
    rows = [
        [f"{paired.ours} − {paired.theirs}" if number == 0 else "", *paired_cells(difference)[:4]]
        for paired in compared
        for number, difference in enumerate(paired.differences)
    ]
    if rows:
        title = "compared by their means alone"
        print_rows(title, ["groups", "score"], ["ours", "theirs", "difference"], rows, width=_WIDTH)


def print_checks(checks: Sequence[Check], title: str) -> None:
    """What a gate found, a line each check."""
    colours: dict[str, Verdict] = {"passes": "better", "fails": "worse"}
    rows = []
    for check in checks:
        change = [decimals(check.difference, "+"), show_interval(check.interval) if check.interval else ""]
        told = coloured(check.told, colours.get(check.verdict, ""))
        figures = [decimals(check.before), decimals(check.after), *change]
        rows.append([check.asked, told, *figures, check.num_queries, check.num_clusters])
    figures = ["before", "after", "difference", "95 %", "queries", "clusters"]
    print_rows(title, ["check", "verdict"], figures, rows, width=_WIDTH)


def print_notes(notes: Sequence[str]) -> None:
    """A line each."""
    terminal = Console(soft_wrap=True)
    for note in notes:
        terminal.print(Text(printable(f"note: {note}"), style="yellow"))
