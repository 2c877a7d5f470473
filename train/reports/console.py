"""Scores as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from train.declarations.registry import smaller_is_better

SAMPLE_NOTE = "on the project's small SAMPLE data: says nothing about a model's quality"

EXTERNAL_NOTE = "trained with EXTERNAL idiom data ({extra}): not the published protocol"


def print_scores(scores: Mapping[str, float], title: str) -> None:
    """Every score, a line each."""
    table = Table(title=title, title_justify="left")
    table.add_column("score", overflow="fold")
    table.add_column("value", justify="right")
    for key, value in scores.items():
        table.add_row(key, f"{value:.4f}")
    _console().print(table)


def print_comparison(before: Mapping[str, float], after: Mapping[str, float], title: str) -> None:
    """Every score that training can change, before and after, and the difference."""
    table = Table(title=title, title_justify="left")
    table.add_column("score", overflow="fold")
    for column in ("before", "after", "difference"):
        table.add_column(column, justify="right")
    for key, value in after.items():
        if "/bm25_" in key:
            continue
        old = before.get(key)
        if old is None:
            table.add_row(key, "", f"{value:.4f}", "")
            continue
        difference = value - old
        gain = -difference if smaller_is_better(key) else difference
        colour = "green" if gain > 0 else "red" if gain < 0 else ""
        change = Text(f"{difference:+.4f}", style=colour)
        table.add_row(key, f"{old:.4f}", f"{value:.4f}", change)
    _console().print(table)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Any table, its first column to the left."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _console() -> Console:
    # Score keys must stay whole where the output is a pipe or a narrow log.
    console = Console()
    return console if console.is_terminal else Console(width=120)
