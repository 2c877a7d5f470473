"""The one reader of users' tables: rows by the roles of their columns, and all problems at once."""

from __future__ import annotations

import difflib
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from idiomtune.data.notation import TextCleaner, clean_text
from idiomtune.data.user.columns import find_marks, remove_marks
from idiomtune.data.user.forms import SPAN_OF, SPAN_PARTS, Form
from idiomtune.data.user.source import Source
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, one_line, parse_json, parse_list, read_checked
from idiomtune.io.tables import Row, has_header, name_row, normalise, shown_path
from idiomtune.requests import find_span

log = logging.getLogger(__name__)

T = TypeVar("T")
Span = tuple[int, int]

_ENTRY = ("text", "title", *SPAN_PARTS, "group", "meaning")  # fields of an object in a list
_NAMING = ("id", "expression")  # roles that name a row in messages
LABELS = ("group", "meaning", "label", "usage")  # roles whose names may be true and false
_ENDS = re.compile(r"[\[(]{1,2}\s*(\d+)\s*,\s*(\d+)\s*[\])]{1,2}")  # of a span, as a list or a tuple
HEAD = 1000  # rows by whose values it is seen what columns mean
_LIST = re.compile(r"""\[\s*(['"]).*\1\s*\]""", re.DOTALL)
_SPAN_END = "\ue000"  # of private use: where a span begins and ends while markup is removed
_MANY = 0.1  # warn of a larger share of texts with marks
_IDS = {"", "id", "_id", "idx", "index", "query_id", "iteration"}  # columns; the last of TREC
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories: controls, formats, blanks


class FieldError(ValueError):
    """A problem of a row, which names the field."""


class UserRecord:
    """A row, by the roles of its columns. All methods raise FieldError for a cell that is wrong.

    Args:
        number: of the row in its file, as people count there.
        values: by column.
        names: role → its columns in this row.
        column: whose cell contains this entry, for messages; None for a complete row.
        cleaner: removes markup from texts.
    """

    def __init__(
        self,
        number: int,
        values: Mapping[str, Any],
        names: Mapping[str, Sequence[str]],
        column: str | None = None,
        cleaner: TextCleaner | None = None,
    ) -> None:
        self.number, self.values, self.names = number, values, names
        self._column = column
        self._cleaner = cleaner or TextCleaner()

    def error(self, role: str, problem: str) -> FieldError:
        """A problem of a role's cell."""
        if self._column is not None:
            return FieldError(f"field {self._column!r}: its {role!r} {problem}")
        return FieldError(f"field {self.names.get(role, (role,))[0]!r}: {problem}")

    def has(self, role: str) -> bool:
        """Whether one of its cells has a value."""
        for column in self.names.get(role, ()):  # noqa: SIM110  called for each cell: a generator costs more
            if not is_empty(self.values.get(column)):
                return True
        return False

    def cell(self, role: str) -> Any:
        """Its value, which must not be empty."""
        if role not in self.names:
            raise self.error(role, "is missing")
        value = self.values.get(self.names[role][0])
        if is_empty(value):
            raise self.error(role, "is blank" if isinstance(value, str) and value else "is empty")
        return value

    def text(self, role: str) -> str:
        """A text with visible characters, without markup."""
        text = self._cleaner.clean(self._raw_text(role), self.number)
        if not text:
            raise self.error(role, "has nothing but markup")
        return text

    def _raw_text(self, role: str) -> str:
        value = self.cell(role)
        if not isinstance(value, str):
            raise self.error(role, f"must be a text, got {value!r}")
        if "\0" in value:
            raise self.error(role, "contains a NUL character")
        if not value.isprintable() and all(unicodedata.category(c) in _INVISIBLE for c in value):
            raise self.error(role, f"contains only invisible characters: {value!a}")
        if value[0] == "[" and [*map(type, _any_list(value) or ())][1:2] == [str]:
            raise self.error(role, f"is a list, and must be one text: {value[:80]!r}")
        return value

    def optional_text(self, role: str) -> str | None:
        """None if the cell is empty."""
        return self.text(role) if self.has(role) else None

    def name(self, role: str) -> str:
        """A name, which may be a whole number."""
        value = self.cell(role)
        if isinstance(value, float) and value.is_integer():  # whole numbers in a column with gaps
            value = int(value)
        if items := _any_list(value):
            if len(items) > 1:
                raise self.error(role, f"is a list, {value!r}: write a row for each of its names")
            (value,) = items
        if isinstance(value, bool) and role in LABELS:
            return str(value).lower()
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.error(role, f"must be a text or a whole number, got {value!r}")
        return str(value)

    def optional_name(self, role: str) -> str | None:
        """None if the cell is empty."""
        return self.name(role) if self.has(role) else None

    def number_in(self, role: str) -> float:
        """A finite number, also as text."""
        number = as_number(self.cell(role))
        if number is None:
            raise self.error(role, f"{self.cell(role)!r} is not a number")
        return number

    def list_in(self, role: str) -> list[Any]:
        """A list, also as text in JSON's or Python's notation; a plain text is a list of one."""
        value = items = self.cell(role)
        if isinstance(value, str):
            items = _any_list(value) if value.lstrip().startswith("[") else [value]
        if not isinstance(items, list):
            raise self.error(role, f'is not a list, as ["one", "two"]: {value!r}')
        return items

    def marked_text(self, role: str = "text", span: str = "span") -> tuple[str, Span | None]:
        """A text, and the offsets of the span that the row marks in it.

        A title, if there is one, precedes the text, or replaces an empty one; spans count without it.

        Args:
            span: role of the words; `<span>_start` and `<span>_end` have the ends.
        """
        title = self.optional_text("title") if "title" in self.names else None
        if title is not None and not self.has(role):
            return title, self._span(title, span)
        before = "" if title is None else f"{title} "
        ends: Span | None
        if self.has(f"{span}_start") or (self.has(span) and _ENDS.fullmatch(str(self.cell(span)))):
            raw = self._raw_text(role)  # whose characters are counted
            start, end = self._span(raw, span) or (0, 0)
            marked = _SPAN_END.join((raw[:start], raw[start:end], raw[end:]))
            parts = self._cleaner.clean(marked, self.number).split(_SPAN_END)
            if len(parts) < 3 or not parts[1]:  # a span of nothing but markup
                parts = marked.split(_SPAN_END)
            text, ends = "".join(parts), (len(parts[0]), len(parts[0] + parts[1]))
        else:
            text = self.text(role)
            ends = self._span(text, span)
        return before + text, ends and (ends[0] + len(before), ends[1] + len(before))

    def _span(self, text: str, role: str) -> Span | None:
        """At its ends, or where its words first occur; None if nothing is marked."""
        start, end = f"{role}_start", f"{role}_end"
        if not (role in self.names or start in self.names or end in self.names):
            return None
        ends = _ENDS.fullmatch(str(self.cell(role))) if self.has(role) else None
        words = None if ends else self.optional_text(role)
        if not ends and not self.has(start) and not self.has(end):
            offsets = None if words is None else find_span(text, words)
            if words is not None and offsets is None:
                raise self.error(role, f"{words!r} is not in the text {text!r}")
            return offsets
        for role_of_end, other in () if ends else ((start, end), (end, start)):
            if not self.has(other):
                raise self.error(role_of_end, f"needs {other} too")
        cells = (ends[1], ends[2]) if ends else (self.cell(start), self.cell(end))
        first, last = map(as_number, cells)
        if first is None or last is None or not 0 <= first < last <= len(text) or first % 1 or last % 1:
            problem = f"{cells[0]}–{cells[1]} is not a valid range in a text of {len(text)} characters"
            raise self.error(role if ends else start, problem)
        offsets = int(first), int(last)
        if words is not None and find_span(text[slice(*offsets)], words) != (0, last - first):
            raise self.error(role, f"is {words!r}, but the text has {text[slice(*offsets)]!r} there")
        return offsets

    def _texts(self, role: str, cell: Any) -> list[Any]:
        """The texts in a cell: a list, also as text in a CSV, or one text such as "[Laughter] No."."""
        texts = _any_list(cell)
        if texts is not None and (texts is cell or all(isinstance(text, str | dict) for text in texts)):
            return texts
        if isinstance(cell, str) and _LIST.fullmatch(cell.strip()):
            raise self.error(role, f'is a list that cannot be read ({cell:.60}): write JSON, ["…", "…"]')
        return [cell]

    def entries(self, role: str, span: str, *, several: bool = True) -> list[UserRecord]:
        """The texts of a role, each as a record: a text, or an object.

        An object has `text` or `title`, and perhaps `span`, `group` and `meaning`.

        Args:
            span: as for :meth:`marked_text`; the row's is that of a single entry.
            several: those of all its columns, and of lists in them; otherwise its only one.
        """
        if several:
            filled = (c for c in self.names.get(role, ()) if not is_empty(self.values.get(c)))
            cells = [(column, text) for column in filled for text in self._texts(role, self.values[column])]
        else:
            cells = [(self.names.get(role, (role,))[0], self.cell(role))]
        marks = {
            part: self.names[name] for part in SPAN_PARTS if self.has(name := part.replace("span", span))
        }
        if marks and len(cells) > 1:
            problem = 'there are several texts; write each as an object: {"text": …, "span": …}'
            raise self.error(next(iter(marks)).replace("span", span), problem)
        around = {columns[0]: self.values[columns[0]] for columns in marks.values()}
        records = []
        for column, entry in cells:
            if isinstance(entry, dict):
                own = {key: [key] for key in entry if key in _ENTRY}
                names = own if own.keys() & set(SPAN_PARTS) else {**marks, **own}
                records.append(UserRecord(self.number, {**around, **entry}, names, column, self._cleaner))
            else:
                records.append(
                    UserRecord(
                        self.number,
                        {**around, column: entry},
                        {**marks, "text": [column]},
                        cleaner=self._cleaner,
                    )
                )
        return records


class UserTable:
    """A table's rows, in the first form that its columns make.

    Args:
        source: the table, or its file.
        forms: that it may have.
        chosen: role → the column that the user says has it.
        option: with which users choose; without one, of several columns of a role that with its first name
            is taken.

    Raises:
        UserError: if the user chose a column for an unknown role, or for two.

    Attributes:
        form: of its rows, once one was read.
        kinds: columns of a row → role → those that have it; in JSON lines each row may have others.
        left_out: columns that have no role, whatever their names.
    """

    def __init__(
        self,
        source: Source | Path,
        forms: Sequence[Form],
        chosen: Mapping[str, str] | None = None,
        option: str = "",
    ) -> None:
        self.source = Source(shown_path(source), source) if isinstance(source, Path) else source
        self._forms, self._chosen, self._option = forms, chosen or {}, option
        self.kinds: dict[tuple[str, ...], dict[str, list[str]]] = {}
        self.left_out: set[str] = set()
        self._notes: list[str] = []  # warnings, once all rows are read
        self._head: list[Row] = []  # the first rows
        self._marks: dict[str, tuple[str, str]] = {}  # column → how spans are marked in it, and their role
        roles = dict.fromkeys(role for form in forms for role in form.roles)
        for role, column in self._chosen.items():
            if role not in roles and not any(form.role_of(role) for form in forms):
                problem = f"{option}: {role!r} is not one of {', '.join(roles)}"
                raise UserError(problem, file=self.source.name)
            if others := [other for other, same in self._chosen.items() if same == column][1:]:
                problem = f"{option}: the column {column!r} is given for {role} and {others[0]}"
                raise UserError(problem, file=self.source.name)

    @property
    def form(self) -> Form:
        return self._forms[0]

    def read(
        self,
        make: Callable[[UserRecord], T],
        rows: Iterator[Row] | None = None,
        *,
        may_be_empty: bool = False,
    ) -> Iterator[T]:
        """What `make` returns for each row; it raises FieldError for a problem.

        Args:
            rows: in place of the source's.

        Raises:
            UserError: at once, if the columns make no form; after the last row, naming row and field of all
                problems.
        """
        numbered = self.source.rows() if rows is None else rows
        head = self._head = list(islice(numbered, HEAD))
        header = list(dict.fromkeys(column for row in head for column in row.values))
        self._look_at(head, header)
        numbered = map(self._without_marks, chain(head, numbered)) if self._marks else chain(head, numbered)
        cleaner = TextCleaner()
        records = (
            UserRecord(row.number, row.values, self._names(tuple(row.values)), cleaner=cleaner)
            for row in numbered
        )
        yield from read_checked(records, make, self.source.name, _row_name)
        cleaner.log(self.source.name)
        if not (self.kinds or may_be_empty):
            raise UserError("there is no row", file=self.source.name)
        for note in self._notes:
            log.warning("%s", note)
        self._check_chosen(list(dict.fromkeys(column for kind in self.kinds for column in kind)))

    def log_unread(self) -> None:
        """Log the columns that have no role, or are not the first with theirs, if there are any."""
        read = {columns[0] for names in self.kinds.values() for columns in names.values()}
        every = dict.fromkeys(column for header in self.kinds for column in header)
        if unread := [one_line(name) for name in every if name not in read and normalise(name) not in _IDS]:
            log.info("%s: not read: %s", self.source.name, list_names(unread))

    def _look_at(self, head: Sequence[Row], header: Sequence[str]) -> None:
        """Find marks around spans in texts without a column of spans."""
        form = self._fitting_form(header)
        names = self._recognise(form, header) if form else {}
        for role, span in SPAN_OF.items():
            if form is None or len(names.get(role, ())) != 1 or span not in form.roles:
                continue
            column = names[role][0]
            texts = [text for row in head if isinstance(text := row.values.get(column), str)]
            has_span = bool({part.replace("span", span) for part in SPAN_PARTS} & names.keys())
            notes = []
            for kind, num_marked, num_single, example in find_marks(texts):
                marked = f"{num_marked} of {len(texts)} texts have marks {kind} ({one_line(example[:80])})"
                if 2 * num_single > len(texts) and not has_span:
                    self._marks.setdefault(column, (kind, span))
                    notes.append(f"{marked}: they are read as the {span}, and are no part of the text")
                elif num_marked > _MANY * len(texts) and example == clean_text(example):
                    advice = "remove them, or mark one stretch of each text and no other span"
                    notes.append(f"{marked}: read as words: {advice}")
            self._notes += [f"{self.source.name}, field {column!r}: {note}" for note in notes]

    def _without_marks(self, row: Row) -> Row:
        """The row, with the ends of marked spans in columns of their own."""
        values = dict(row.values)
        for column, (kind, span) in self._marks.items():
            stretches: list[Span] = []
            if isinstance(text := values.get(column), str):
                values[column], stretches = remove_marks(text, kind)
            start, end = (stretches[0][0], stretches[-1][1]) if stretches else (None, None)
            values |= {f"{span}_start": start, f"{span}_end": end}
        return Row(row.number, values)

    def _fitting_form(self, header: Iterable[str]) -> Form | None:
        """The first form that fits the columns and has all roles in the user's mapping."""
        for form in self._forms:
            has_chosen = all(role in form.roles or form.role_of(role) for role in self._chosen)
            if has_chosen and self._recognise(form, header).keys() >= set(form.required):
                return form
        return None

    def _recognise(self, form: Form, header: Iterable[str]) -> dict[str, list[str]]:
        return form.recognise([column for column in header if column not in self.left_out], self._chosen)

    def _names(self, header: tuple[str, ...]) -> dict[str, list[str]]:
        """The columns of each role; the first row's columns choose the form."""
        if header not in self.kinds:
            if not self.kinds:
                self._choose_form(header)
            names = self._recognise(self.form, header)
            for role, columns in names.items():
                if len(columns) == 1 or role in self.form.several:
                    continue
                if self._option:
                    problem = f"the columns {' and '.join(map(repr, columns))} could each be the {role}"
                    advice = f"leave one out, or choose with {self._option}={{{role}: <column>}}"
                    raise UserError(f"{problem}: {advice}", file=self.source.name)
                columns.sort(key=lambda column: self.form.roles[role].index(normalise(column)))
            self.kinds[header] = names
        return self.kinds[header]

    def _choose_form(self, header: Sequence[str]) -> None:
        has_one_header = self.source.path is None or has_header(self.source.path)
        if has_one_header:
            self._check_chosen(header)
        if form := self._fitting_form(header):
            self._forms = [form]
            return
        for row in self._head:
            if self._fitting_form(list(map(str, row.values.values()))):
                problem = f"the names of its columns are in row {row.number}: remove the rows above it"
                raise UserError(problem, file=self.source.name)
        titles = "; ".join(dict.fromkeys(f"{f.name}: {', '.join(f.required)}" for f in self._forms))
        all_aliases = {alias for form in self._forms for aliases in form.roles.values() for alias in aliases}
        near = "".join(
            f"; {column!r} (is it {match[0]!r}?)"
            for column in header
            if (name := normalise(column)) not in all_aliases
            and (match := difflib.get_close_matches(name, all_aliases, 1, 0.8))
        )
        mappings = [", ".join(f"{role}: <column>" for role in form.required) for form in self._forms]
        options = " or ".join(f"'{self._option}={{{mapping}}}'" for mapping in dict.fromkeys(mappings))
        advice = f", or map them with {options}" if self._option else ""
        have = ", ".join(map(one_line, header)) or "none"
        if any(form.name in ("glossary", "expressions") for form in self._forms) and not has_one_header:
            near += '. A glossary in JSON is {"<expression>": "<meaning>", …}, or a list of rows'
        elif any(len(column.split()) > 2 for column in header):
            near += ". If that is its first row, put a line with names above it, such as question,answer"
        problem = f"its columns ({have}) are not those of {titles}. Rename them{advice}{near}"
        raise UserError(problem, file=self.source.name)

    def _check_chosen(self, header: Sequence[str]) -> None:
        """Raises UserError if the table does not have a column that the user chose."""
        for column in self._chosen.values():
            if column not in header:
                match = difflib.get_close_matches(column, header, 1)
                near = f"is it {match[0]!r}?" if match else f"it has {', '.join(header)}"
                problem = f"there is no column {column!r}, which {self._option} names ({near})"
                raise UserError(problem, file=self.source.name)


def _row_name(record: UserRecord) -> str:
    named_by = next((record.names[role][0] for role in _NAMING if role in record.names), "")
    return name_row(record.number, record.values, named_by)


def is_empty(value: Any) -> bool:
    """Whether a cell has no value, only blanks, or an empty list."""
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def as_number(value: Any) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):  # as 1_000
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def unique() -> Callable[[UserRecord, str], str]:
    """A check of ids, each of which only one row may have; it returns the id."""
    rows: dict[str, int] = {}

    def check(record: UserRecord, id_: str) -> str:
        if id_ in rows:
            raise record.error("id", f"{id_!r} occurs twice (first in row {rows[id_]})")
        rows[id_] = record.number
        return id_

    return check


def _any_list(cell: Any) -> list[Any] | None:
    """A list, also as text in JSON's or Python's notation; None if it is something else."""
    if not (isinstance(cell, str) and cell.lstrip().startswith("[")):
        return cell if isinstance(cell, list) else None
    try:
        parsed = parse_json(cell)
    except ValueError:
        return parse_list(cell)
    return parsed if isinstance(parsed, list) else None
