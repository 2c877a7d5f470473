"""The one reader of users' tables: rows by the roles of their columns, and all that is wrong with them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from train.data.own.forms import SPAN_PARTS, Form, no_column, unrecognised
from train.data.own.sources import Source
from train.errors import UserError
from train.io.records import made, parse_json, parse_list
from train.io.tables import Row, has_header, name_row
from train.requests import find_span

T = TypeVar("T")
Span = tuple[int, int]

_ENTRY = ("text", "title", *SPAN_PARTS, "group", "meaning")  # of an object in a list
_NAMING = ("id", "row_id", "expression")  # roles that name a row in messages
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories: controls, formats, blanks


class FieldError(ValueError):
    """What is wrong with a row, in words that name the field."""


class Record:
    """A row, by the roles of its columns. All methods raise FieldError for what is wrong.

    Args:
        number: of the row in its file, as people count there.
        values: by column.
        names: role → its columns in this row.
        column: of the cell that this is an entry of, for messages; None for a whole row.
    """

    def __init__(
        self,
        number: int,
        values: Mapping[str, Any],
        names: Mapping[str, Sequence[str]],
        column: str | None = None,
    ) -> None:
        self.number, self.values, self.names = number, values, names
        self._column = column

    def error(self, role: str, problem: str) -> FieldError:
        """A problem of a role's cell."""
        if self._column is not None:
            return FieldError(f"field {self._column!r}: its {role!r} {problem}")
        return FieldError(f"field {self.names.get(role, (role,))[0]!r}: {problem}")

    def has(self, role: str) -> bool:
        """Whether anything is in it."""
        for column in self.names.get(role, ()):  # noqa: SIM110  called for each cell: a generator costs more
            if not is_empty(self.values.get(column)):
                return True
        return False

    def cell(self, role: str) -> Any:
        """What is in it, which must be something."""
        if role not in self.names:
            raise self.error(role, "is missing")
        value = self.values.get(self.names[role][0])
        if is_empty(value):
            raise self.error(role, "is blank" if isinstance(value, str) and value else "is empty")
        return value

    def text(self, role: str) -> str:
        """A text with visible characters."""
        value = self.cell(role)
        if not isinstance(value, str):
            raise self.error(role, f"must be a text, found {value!r}")
        if "\0" in value:
            raise self.error(role, "contains a NUL character")
        if not value.isprintable() and all(unicodedata.category(c) in _INVISIBLE for c in value):
            raise self.error(role, f"contains invisible characters only: {value!a}")
        return value

    def optional_text(self, role: str) -> str | None:
        """None where the cell is empty."""
        return self.text(role) if self.has(role) else None

    def name(self, role: str) -> str:
        """A name, which may be a whole number."""
        value = self.cell(role)
        if isinstance(value, float) and value.is_integer():  # as tables with gaps hold whole numbers
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.error(role, f"must be a text or a whole number, found {value!r}")
        return str(value)

    def optional_name(self, role: str) -> str | None:
        """None where the cell is empty."""
        return self.name(role) if self.has(role) else None

    def number_in(self, role: str) -> float:
        """A finite number, also as text."""
        number = as_number(self.cell(role))
        if number is None:
            raise self.error(role, f"{self.cell(role)!r} is not a number")
        return number

    def list_in(self, role: str) -> list[Any]:
        """A list, also as text in JSON's or Python's notation; a plain text is a list of one."""
        value = self.cell(role)
        if isinstance(value, list):
            return value
        if not isinstance(value, str):
            raise self.error(role, f"must be a list, found {value!r}")
        parsed = _parsed_list(value) if value.lstrip().startswith("[") else [value]
        if parsed is None:
            parsed = parse_list(value)
        if parsed is None:
            raise self.error(role, f'is not a list, as ["one", "two"]: {value!r}')
        return parsed

    def marked(self, role: str = "text", span: str = "span") -> tuple[str, Span | None]:
        """A text, and the offsets of what the row marks in it.

        A title, if there is one, comes before the text, or in place of an empty one; spans count without it.

        Args:
            span: role of the words; `<span>_start` and `<span>_end` have the ends.
        """
        title = self.optional_text("title") if "title" in self.names else None
        if title is not None and not self.has(role):
            return title, self._span(title, span)
        text, before = self.text(role), "" if title is None else f"{title} "
        found = self._span(text, span)
        return before + text, found and (found[0] + len(before), found[1] + len(before))

    def _span(self, text: str, role: str) -> Span | None:
        """At its ends, or where its words first occur; None if nothing is marked."""
        start, end = f"{role}_start", f"{role}_end"
        if not (role in self.names or start in self.names or end in self.names):
            return None
        words = self.cell(role) if self.has(role) else None
        if words is not None and not isinstance(words, str):
            raise self.error(role, f"must be a text, found {words!r}")
        if not self.has(start) and not self.has(end):
            found = None if words is None else find_span(text, words)
            if words is not None and found is None:
                raise self.error(role, f"{words!r} is not in the text {text!r}")
            return found
        for given, other in ((start, end), (end, start)):
            if not self.has(other):
                raise self.error(given, f"needs {other} too")
        first, last = as_number(self.cell(start)), as_number(self.cell(end))
        if first is None or last is None or not 0 <= first < last <= len(text) or first % 1 or last % 1:
            given = f"{self.cell(start)}–{self.cell(end)}"
            raise self.error(start, f"{given} is not a valid range in a text of {len(text)} characters")
        offsets = int(first), int(last)
        if words is not None and text[slice(*offsets)] != words:
            raise self.error(role, f"is {words!r}, but the text has {text[slice(*offsets)]!r} there")
        return offsets

    def entries(self, role: str, span: str) -> list[Record]:
        """The texts of a role that may have several: of all its columns, and of lists in them.

        An entry is a text, or an object with `text` or `title`, and perhaps `span`, `group` and `meaning`.

        Args:
            span: as for :meth:`marked`; the row's is that of a single entry.
        """
        return self._entries(
            span,
            [
                (column, entry)
                for column in self.names.get(role, ())
                if not is_empty(self.values.get(column))
                for entry in _listed(self.values[column])
            ],
        )

    def is_object(self, role: str) -> bool:
        """Whether its cell is an object, as in :meth:`entries`."""
        return role in self.names and isinstance(self.values.get(self.names[role][0]), dict)

    def entry(self, role: str, span: str) -> Record:
        """The object in a role's cell."""
        return self._entries(span, [(self.names[role][0], self.cell(role))])[0]

    def _entries(self, span: str, cells: Sequence[tuple[str, Any]]) -> list[Record]:
        roles = {part: part.replace("span", span) for part in SPAN_PARTS}
        marks = {part: self.names[role] for part, role in roles.items() if self.has(role)}
        if marks and len(cells) > 1:
            problem = 'there are several texts; write each as an object: {"text": …, "span": …}'
            raise self.error(roles[next(iter(marks))], problem)
        around = {columns[0]: self.values[columns[0]] for columns in marks.values()}
        entries = []
        for column, entry in cells:
            if isinstance(entry, dict):
                own = {key: [key] for key in entry if key in _ENTRY}
                names = own if own.keys() & set(SPAN_PARTS) else {**marks, **own}
                entries.append(Record(self.number, {**around, **entry}, names, column))
            else:
                entries.append(Record(self.number, {**around, column: entry}, {**marks, "text": [column]}))
        return entries


class Table:
    """A table's rows, in the first form that its columns make.

    Args:
        source: the table.
        forms: that it may have.
        chosen: role → the column that the user says has it.
        option: that says so; without one, of several columns of a role the first of its names is taken.

    Attributes:
        form: of its rows, once one was read.
        kinds: columns of a row → role → those that have it; in JSON lines each row may have others.
    """

    def __init__(
        self,
        source: Source,
        forms: Sequence[Form],
        chosen: Mapping[str, str] | None = None,
        option: str = "",
    ) -> None:
        self.source, self._forms = source, forms
        self._chosen, self._option = chosen or {}, option
        self.kinds: dict[tuple[str, ...], dict[str, list[str]]] = {}

    @property
    def form(self) -> Form:
        return self._forms[0]

    def read(self, make: Callable[[Record], T], rows: Iterator[Row] | None = None) -> Iterator[T]:
        """What `make` makes of each row, which raises FieldError for what is wrong.

        Args:
            rows: in place of the source's.

        Raises:
            UserError: at once, if the columns make no form; after the last row, naming row and field of all
                problems.
        """
        numbered = self.source.rows() if rows is None else rows
        records = (Record(row.number, row.values, self._names(row)) for row in numbered)
        yield from made(records, make, self.source.name, _place)
        if not self.kinds:
            raise UserError(f"{self.source.name}: there is no row")
        self._check_chosen([column for kind in self.kinds for column in kind])

    def _names(self, row: Row) -> dict[str, list[str]]:
        """The columns of each role; the first row's columns choose the form."""
        header = tuple(row.values)
        if header in self.kinds:
            return self.kinds[header]
        name, option = self.source.name, self._option
        if not self.kinds:
            if self.source.path is None or has_header(self.source.path):
                self._check_chosen(header)
            forms = [f for f in self._forms if f.recognise(header, self._chosen).keys() >= set(f.required)]
            if not forms:
                raise unrecognised(header, self._forms, self._chosen, option, name)
            self._forms = forms[:1]
        found = self.form.recognise(header, self._chosen)
        self.form.check_single(found, option, name)
        self.kinds[header] = found
        return found

    def _check_chosen(self, header: Sequence[str]) -> None:
        """Raises UserError for a column that the user names, and the table does not have."""
        if missing := [column for column in self._chosen.values() if column not in header]:
            raise no_column(missing[0], list(dict.fromkeys(header)), self._option, self.source.name)


def _place(record: Record) -> str:
    named_by = next((record.names[role][0] for role in _NAMING if role in record.names), "")
    return name_row(record.number, record.values, named_by)


def is_empty(value: Any) -> bool:
    """Whether nothing is in a cell: no value, only blanks, or an empty list."""
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def as_number(value: Any) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and "_" in value:  # which Python takes: 1_000
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def unique() -> Callable[[Record, str], str]:
    """A check of ids, each of which one row may have; it returns the id."""
    rows: dict[str, int] = {}

    def check(record: Record, id_: str) -> str:
        if id_ in rows:
            raise record.error("id", f"{id_!r} occurs twice (first in row {rows[id_]})")
        rows[id_] = record.number
        return id_

    return check


def _listed(cell: Any) -> list[Any]:
    """The texts in a cell: a list, also as JSON's in a CSV, or one text such as "[Laughter] No."."""
    if isinstance(cell, list):
        return cell
    parsed = _parsed_list(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else None
    return parsed if parsed and all(isinstance(entry, str | dict) for entry in parsed) else [cell]


def _parsed_list(text: str) -> list[Any] | None:
    try:
        parsed = parse_json(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, list) else None
