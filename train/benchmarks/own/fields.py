"""Users' own tables: which column is which, texts with their spans, and what is wrong with a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.benchmarks.own import Mode
from train.data.own.cells import (
    CellError,
    as_name,
    as_number,
    as_text,
    is_empty,
    normalised,
    span_offsets,
)
from train.errors import UserError
from train.io.records import Problems
from train.io.tables import Row, name_row, read_rows
from train.io.text import printable
from train.requests import Request, Role

Columns = Mapping[str, Sequence[str]]  # role → names of columns that have it


@dataclass(frozen=True, slots=True)
class OwnText:
    """A text to embed.

    Attributes:
        span: offsets [start, end) of what its row marks, if anything.
        instruction: its row's, else that of the options.
    """

    text: str
    span: tuple[int, int] | None = None
    instruction: str | None = None

    def request(self, mode: Mode, role: Role = "document") -> Request:
        """In the mode `span`, a text without a span is embedded whole."""
        if self.span is None or mode == "sentence":
            return Request(self.text, self.span, role, self.instruction)
        return Request(self.text, self.span, role, self.instruction, pooling="span")


def span_note(texts: Iterable[OwnText], key: str) -> list[str]:
    """How many texts the mode `span` embeds whole, for want of a span; none if all are, or have one."""
    have = [text.span is not None for text in texts]
    if all(have) or not any(have):
        return []
    return [f"{key}: {have.count(False)} of {len(have)} texts have no span: there, they are embedded whole"]


class FieldError(Exception):
    """What is wrong with a field, in words."""


class Record:
    """A row, by the roles of its columns.

    Args:
        names: role → the row's column.
        where: the row in messages.
    """

    def __init__(self, row: Row, names: Mapping[str, str], where: str) -> None:
        self.number = row.number
        self.values = row.values
        self.names = names
        self.where = where

    def has(self, role: str) -> bool:
        """Whether there is anything in it."""
        return role in self.names and not is_empty(self.values[self.names[role]])

    def raw(self, role: str) -> Any:
        """What stands in it.

        Raises:
            FieldError: if it is missing or empty.
        """
        if role not in self.names:
            raise self.error(role, "is missing")
        if not self.has(role):
            raise self.error(role, "is empty")
        return self.values[self.names[role]]

    def text(self, role: str) -> str:
        """Raises FieldError if it is missing, empty or no text."""
        if role not in self.names:
            raise self.error(role, "is missing")
        try:
            return as_text(self.values[self.names[role]])
        except CellError as error:
            raise self.error(role, str(error)) from None

    def optional_text(self, role: str) -> str | None:
        """None where nothing stands."""
        return self.text(role) if self.has(role) else None

    def name(self, role: str, default: str | None = None) -> str:
        """An id, which may be a whole number; the default, if there is one, where there is no such column."""
        if role not in self.names and default is not None:
            return default
        try:
            return as_name(self.raw(role))
        except CellError as error:
            raise self.error(role, str(error)) from None

    def group(self) -> str | None:
        """What the row belongs to; None where nothing is said."""
        return self.name("group") if self.has("group") else None

    def number_in(self, role: str) -> float:
        """Raises FieldError if it is no finite number."""
        value = self.raw(role)
        number = as_number(value)
        if number is None:
            raise self.error(role, f"{value!r} is no number")
        return number

    def span_text(self, role: str, suffix: str = "", before: str = "", default: str | None = None) -> OwnText:
        """The text of a role with what `span<suffix>`, or its start and end, mark in it.

        Args:
            before: put before the text; the span counts without it.
            default: the instruction, where the row has none.
        """
        text = self.text(role)
        instruction = self.optional_text("instruction") or default
        span = self._span(text, f"span{suffix}")
        if span is not None:
            span = span[0] + len(before), span[1] + len(before)
        return OwnText(before + text, span, instruction)

    def _span(self, text: str, role: str) -> tuple[int, int] | None:
        span, start, end = (
            self.values[self.names[part]] if part in self.names else None
            for part in (role, f"{role}_start", f"{role}_end")
        )
        try:
            return span_offsets(text, span, start, end, role)
        except CellError as error:
            raise self.error(error.part, str(error)) from None

    def error(self, role: str, problem: str) -> FieldError:
        return FieldError(f"{self.where}, field {self.names.get(role, role)!r}: {problem}")


class Table:
    """A file's rows by the roles of their columns; problems are collected, and told together.

    Args:
        path: the file.
        columns: role → names that are understood, in any case, with - or a blank for _.
        required: roles that every row must have.
        chosen: role → the column that the user says it is.
        option: that says so; without one, the first of several columns of a role is taken.

    Raises:
        UserError: at :meth:`close`, naming file, row and field of all problems; while rows are read, for a
            file that cannot be read or has not the required columns.
    """

    def __init__(
        self,
        path: Path,
        columns: Columns,
        required: Sequence[str],
        chosen: Mapping[str, str] | None = None,
        option: str = "",
    ) -> None:
        self.path = path
        self._problems = Problems(path)
        self._columns, self._required = columns, required
        self._chosen, self._option = chosen or {}, option
        self._known: dict[tuple[str, ...], dict[str, str]] = {}
        self._ids: dict[str, int] = {}

    def records(self, rows: Iterable[Row] | None = None) -> Iterator[Record]:
        """Each row, for :meth:`collecting` to read; by default those of the file."""
        for row in read_rows(self.path) if rows is None else rows:
            kind = tuple(row.values)
            if kind not in self._known:
                self._known[kind] = self._recognised(kind, is_first=not self._known)
            names = self._known[kind]
            yield Record(
                row, names, name_row(row.number, row.values, names.get("id") or names.get("row_id", ""))
            )

    def add(self, error: FieldError | str) -> None:
        """A problem of a row."""
        self._problems.add(str(error))

    def check_id(self, id_: str, record: Record) -> None:
        """Raises FieldError for an id that an earlier row has."""
        first = self._ids.setdefault(id_, record.number)
        if first != record.number:
            raise record.error("id", f"{id_!r} is that of row {first} too")

    def close(self) -> None:
        """Raises UserError if there are problems."""
        self._problems.raise_if_any()

    def _recognised(self, found: Sequence[str], *, is_first: bool) -> dict[str, str]:
        """Role → column."""
        names: dict[str, str] = {}
        for role, column in self._chosen.items():
            if column in found:
                names[role] = column
            elif is_first:
                raise UserError(
                    printable(
                        f"{self.path}: there is no column {column!r}, which {self._option} says is the "
                        f"{role} (found: {', '.join(found)})"
                    )
                )
        plain = {column: normalised(column) for column in found if column not in names.values()}
        for role, known in self._columns.items():
            if role in names:
                continue
            having = sorted(
                (c for c, name in plain.items() if name in known), key=lambda c: known.index(plain[c])
            )
            if len(having) > 1 and self._option:
                raise UserError(
                    printable(
                        f"{self.path}: the columns {' and '.join(having)} could each be the {role}: "
                        f"choose with {self._option}={{{role}: <column>}}"
                    )
                )
            if having:
                names[role] = having[0]
        missing = [role for role in self._required if role not in names]
        if missing and is_first:
            known = "; ".join(f"{role}: {', '.join(self._columns[role])}" for role in missing)
            choose = f", or name it with {self._option}={{{missing[0]}: <column>}}" if self._option else ""
            raise UserError(
                printable(
                    f"{self.path}: the columns {', '.join(missing)} are missing (found: {', '.join(found)}). "
                    f"Names that are understood: {known}{choose}"
                )
            )
        return names
