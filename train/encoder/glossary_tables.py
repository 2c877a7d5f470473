"""Published tables of expressions and their meanings, which serve as glossaries without being rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train.io.tables import Row, read_rows

_NO_MEANING = ("", "None")


@dataclass(frozen=True)
class _Table:
    """What a table's columns are called.

    Attributes:
        meanings: columns, most common meaning first.
        facts: of every entry.
    """

    expression: str
    meanings: tuple[str, ...]
    facts: dict[str, str]


_TABLES = (
    _Table("Idiom", ("Sense",), {"source": "PIE"}),
    _Table(
        "Multiword Expression",
        ("Non-Literal Meaning 1", "Non-Literal Meaning 2", "Non-Literal Meaning 3"),
        {"source": "AStitchInLanguageModels", "licence": "gpl-3.0"},
    ),
)


def published_rows(path: Path) -> Iterator[Row] | None:
    """The rows of a glossary, one a meaning, of PIE's corpus or AStitchInLanguageModels' table of senses.

    Known by their columns. A row without a meaning is passed over (a compound that only means what its words
    say), and one that says what an earlier one says (PIE has a row for each sentence).

    Returns:
        The rows with the numbers they have in the file; None if the file is neither table.

    Raises:
        UserError: if the file is missing or cannot be read.
    """
    columns = next(read_rows(path))[1].keys()
    for table in _TABLES:
        if {table.expression, *table.meanings} <= columns:
            return _rows(path, table)
    return None


def _rows(path: Path, table: _Table) -> Iterator[Row]:
    seen: set[tuple[str, str]] = set()
    for number, values in read_rows(path, columns=(table.expression, *table.meanings)):
        expression = str(values[table.expression] or "").strip()
        for column in table.meanings:
            meaning = str(values[column] or "").strip(" ,")  # PIE's senses end in commas
            if meaning not in _NO_MEANING and (expression, meaning) not in seen:
                seen.add((expression, meaning))
                yield Row(number, {"expression": expression, "meaning": meaning, **table.facts})
