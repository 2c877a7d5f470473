"""Tables of text, printed for the terminal, in Markdown or LaTeX; the page has its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO
from itertools import groupby

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from idiomtune.io.files import printable
from idiomtune.plugins.score import Verdict

_COLOURS: dict[Verdict, str] = {"better": "green", "worse": "red", "": ""}
_JUDGED = ("difference", "verdict")  # columns in the colour of their row's verdict
_NARROW = 4  # columns of scores that fit into one of two columns of a paper


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        title: what it shows, and in which unit.
        columns: their names; "above\\nname" where equal names above are one heading.
        rows: a text for each column.
        num_labels: how many columns to the left are labels; the others are figures.
        verdicts: of each row, if its difference is judged.
        name: short, for LaTeX labels.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_labels: int = 1
    verdicts: Sequence[Verdict] = ()
    name: str = ""

    @property
    def headings(self) -> list[tuple[str, int]]:
        """Headings above the columns, and how many columns each spans; empty if there are none."""
        above = [column.rpartition("\n")[0] for column in self.columns[self.num_labels :]]
        spans = [("", 1)] * self.num_labels + [(name, len(list(same))) for name, same in groupby(above)]
        return spans if any(above) else []

    @property
    def names(self) -> list[str]:
        """The columns' names under their headings."""
        return [column.rpartition("\n")[2] for column in self.columns]

    def styled_rows(self) -> Iterator[list[tuple[str, Verdict]]]:
        """Each row's cells, with the verdict by which a cell is coloured."""
        verdicts: Sequence[Verdict] = self.verdicts or [""] * len(self.rows)
        for row, verdict in zip(self.rows, verdicts, strict=True):
            yield [(c, verdict if n in _JUDGED else "") for c, n in zip(row, self.names, strict=True)]


def print_table(table: Table, *, width: int = 160) -> None:
    """Print a table.

    Args:
        width: where the output is a pipe or a narrow log: score keys must stay whole.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=width)
    for part in _fit_columns(table, console.width):
        console.print(_rich(part))


def _fit_columns(table: Table, width: int) -> Iterator[Table]:
    """The table, or its columns in several tables with the same labels, so that every figure fits."""
    widths = [
        3 + max(len(line) for text in column for line in text.split("\n"))
        for column in zip(table.columns, *table.rows, strict=True)
    ]
    labels = range(table.num_labels)
    room = width - 1 - sum(widths[n] for n in labels)
    parts: list[list[int]] = [[]]
    for n in range(table.num_labels, len(widths)):
        if parts[-1] and sum(widths[m] for m in parts[-1]) + widths[n] > room:
            parts.append([])
        parts[-1].append(n)
    for number, part in enumerate(parts):
        columns = [*labels, *part]
        rows = [[row[n] for n in columns] for row in table.rows]
        title = table.title if number == 0 else f"{table.title}, continued"
        yield replace(table, title=title, columns=[table.columns[n] for n in columns], rows=rows)


def plain_text(tables: Sequence[Table], *, width: int = 160) -> str:
    """Tables as a terminal shows them, without colours."""
    # Also in a notebook, where it would else be shown instead, or have colours.
    console = Console(width=width, file=StringIO(), force_jupyter=False, force_terminal=False)
    console.print(*(_rich(part) for table in tables for part in _fit_columns(table, width)), sep="\n", end="")
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def html(tables: Sequence[Table]) -> str:
    """Tables for a notebook."""
    return "\n".join(map(_html, tables))


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = ""
    for row in table.styled_rows():
        body += "<tr>"
        for n, (text, verdict) in enumerate(row):
            side = "left" if n < table.num_labels else "right"
            body += f'<td style="text-align:{side};color:{_COLOURS[verdict]}">{escape(text)}</td>'
        body += "</tr>"
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>{body}</table>"


def _rich(table: Table) -> RichTable:
    printed = RichTable(title=Text(printable(table.title)), title_justify="left")
    for number, name in enumerate(table.columns):
        right = number >= table.num_labels
        printed.add_column(Text(printable(name)), justify="right" if right else "left", overflow="fold")
    for row in table.styled_rows():
        printed.add_row(*(Text(printable(cell), style=_COLOURS[verdict]) for cell, verdict in row))
    return printed


def print_notes(notes: Sequence[str]) -> None:
    """A line each."""
    terminal = Console(soft_wrap=True)
    for note in notes:
        terminal.print(Text(printable(f"note: {note}"), style="yellow"))


def markdown(table: Table) -> str:
    """A table as Markdown, without its title."""
    rule = ["---"] * table.num_labels + ["---:"] * (len(table.columns) - table.num_labels)
    rows = [table.columns, rule, *table.rows]
    return "\n".join("| " + " | ".join(map(cell, row)) + " |" for row in rows)


def cell(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_TEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"ε": r"$\varepsilon$", "±": r"$\pm$", "↓": r"$\downarrow$", "→": r"$\rightarrow$"},
        **{"…": r"\dots{}", "–": "--", "<": "$<$", ">": "$>$", "|": "$|$"},
    }
)


def latex(table: Table) -> str:
    r"""A table for `\usepackage{booktabs}`; a label that repeats the one above it is left out."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(text.translate(_TEX) for text in cells) + r" \\"

    num_figures = len(table.columns) - table.num_labels
    width = "table*" if num_figures > _NARROW else "table"
    lines = [rf"\begin{{{width}}}", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    lines += [rf"\begin{{tabular}}{{{'l' * table.num_labels}{'r' * num_figures}}}", r"\toprule"]
    if spans := table.headings[table.num_labels :]:
        above, rules, first = [""] * table.num_labels, [], table.num_labels + 1
        for name, span in spans:
            above.append(rf"\multicolumn{{{span}}}{{c}}{{{name.translate(_TEX)}}}")
            rules += [rf"\cmidrule(lr){{{first}-{first + span - 1}}}"] if name else []
            first += span
        lines += [" & ".join(above) + r" \\", " ".join(rules)]
    lines += [line(table.names), r"\midrule"]
    last = None
    for label, *others in table.rows:
        repeats = table.num_labels > 1 and label == last
        lines += [r"\midrule"] * (table.num_labels > 1 and last is not None and not repeats)
        lines.append(line(["" if repeats else label, *others]))
        last = label
    name = re.sub(r"[^A-Za-z0-9-]+", "-", table.name)
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{table.title.translate(_TEX)}.}}"]
    return "\n".join([*lines, rf"\label{{tab:{name}}}", rf"\end{{{width}}}"])


def latex_document(tables: Sequence[Table], notes: Sequence[str]) -> str:
    r"""All tables, to be `\input` by a document that uses booktabs."""
    start = [r"% \usepackage{booktabs} in the preamble; mean $\pm$ sample standard deviation over seeds"]
    comments = [f"% {line}" for note in notes for line in note.splitlines()]
    return "\n".join([*start, *comments, "", "\n\n".join(map(latex, tables)), ""])
