"""Scores as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from train.declarations.registry import Verdict, benchmark_of
from train.io.text import printable
from train.reports.scorecard import decimals, score_rows

_COLOURS: dict[Verdict, str] = {"better": "green", "worse": "red", "": ""}


def print_scores(scores: Mapping[str, float], title: str) -> None:
    """Every score, a line each."""
    print_table(title, ["score"], ["value"], [[key, decimals(value)] for key, value in scores.items()])


def print_comparison(before: Mapping[str, float], after: Mapping[str, float], title: str) -> None:
    """Every score that training can change, before and after, and the difference."""
    rows = [
        [row.key, *row.cells[:2], coloured(row.cells[2], row.verdict)]
        for row in score_rows(after, before)
        if not benchmark_of(row.key).is_constant(row.key)
    ]
    print_table(title, ["score"], ["before", "after", "difference"], rows)


def print_table(
    title: str,
    labels: Sequence[str],
    figures: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int = 120,
) -> None:
    """Any table.

    Args:
        labels: names of the columns to the left.
        figures: names of those behind them, whose cells end at the right.
        width: where the output is a pipe or a narrow log: score keys must stay whole.
    """
    table = Table(title=Text(printable(title)), title_justify="left")
    for name in labels:
        table.add_column(Text(printable(name)), overflow="fold")
    for name in figures:
        table.add_column(Text(name), justify="right")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    console = Console()
    (console if console.is_terminal else Console(width=width)).print(table)


def coloured(text: str, verdict: Verdict) -> Text:
    """Green for better, red for worse."""
    return Text(text, style=_COLOURS[verdict])
