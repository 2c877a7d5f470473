"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from train.declarations.registry import smaller_is_better
from train.reports.compare import Paired
from train.reports.groups import Group
from train.reports.tables import PAIRED_HEADS, Table, paired_cells, verdict

_COLOURS = {"better": "green", "worse": "red", "": ""}


def print_table(table: Table) -> None:
    """Scores of groups beside the untrained model's."""
    drawn = RichTable(title=Text(table.title), title_justify="left")
    for label in table.labels:
        drawn.add_column(label, overflow="fold")
    for above, name in table.columns:
        drawn.add_column(Text(f"{above}\n{name}".strip()), justify="right")
    for labels, values in table.rows:
        drawn.add_row(*(Text(label) for label in labels), *(table.text(value) for value in values))
    _print(drawn)


def print_scores(group: Group) -> None:
    """Every score of a group, a line each."""
    drawn = RichTable(title=Text(f"{group.name}: {group.summary}"), title_justify="left")
    drawn.add_column("score", overflow="fold")
    for column in ("untrained", "mean", "± std", "seeds", "difference"):
        drawn.add_column(column, justify="right")
    for key in group.keys:
        value, before = group.value(key), group.value(key, untrained=True)
        if value is None:
            continue
        cells = ["" if before is None else f"{before.mean:.4f}", f"{value.mean:.4f}"]
        cells += ["" if value.std is None else f"{value.std:.4f}", str(value.num_seeds)]
        change = Text("")
        if before is not None:
            gain = (value.mean - before.mean) * (-1 if smaller_is_better(key) else 1)
            colour = "green" if gain > 0 else "red" if gain < 0 else ""
            change = Text(f"{value.mean - before.mean:+.4f}", style=colour)
        drawn.add_row(key, *cells, change)
    _print(drawn)


def print_paired(paired: Paired) -> None:
    """A comparison, a line a score."""
    drawn = RichTable(title=Text(f"{paired.ours} − {paired.theirs}"), title_justify="left")
    drawn.add_column("score", overflow="fold")
    for column in ("ours", "theirs", *PAIRED_HEADS):
        drawn.add_column(column, justify="right")
    for difference in paired.differences:
        cells = paired_cells(difference)
        change = Text(cells[3], style=_COLOURS[verdict(difference)])
        drawn.add_row(*cells[:3], change, *cells[4:])
    _print(drawn)


def print_notes(notes: Sequence[str]) -> None:
    """A line each."""
    console = Console(soft_wrap=True)
    for note in notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _print(drawn: RichTable) -> None:
    # Names and figures must stay whole where the output is a pipe or a narrow log.
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(drawn)
