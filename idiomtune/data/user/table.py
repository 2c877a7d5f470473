"""The one reader of users' tables: rows by the roles of their columns, and all problems at once."""

from __future__ import annotations

import difflib
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from idiomtune.data.notation import TextCleaner
from idiomtune.data.user.columns import MARKS, as_number, read_marks
from idiomtune.data.user.forms import SPAN_OF, SPAN_PARTS, Form
from idiomtune.data.user.source import Source
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, one_line, parse_json, parse_list, read_checked
from idiomtune.io.tables import Row, name_row, normalise, shown_path
from idiomtune.requests import find_span

log = logging.getLogger(__name__)

T = TypeVar("T")
Span = tuple[int, int]

_ENTRY = ("text", "title", *SPAN_PARTS, "group", "meaning")  # fields of an object in a list
_NAMING = ("id", "expression")  # roles that name a row in messages
_LIST = re.compile(r"""\[\s*(['"]).*\1\s*\]""", re.DOTALL)
_SPAN_END = "\ue000"  # of private use: where a span begins and ends while markup is removed
_IDS = {"", "id", "_id", "idx", "index", "query_id", "iteration"}  # columns; the last of TREC
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories: controls, formats, blanks


class FieldError(ValueError):
    """A problem of a row, which names the field."""


@dataclass(slots=True)
class UserRecord:
    """A row, by the roles of its columns. All methods raise FieldError for a cell that is wrong.

    Attributes:
        number: of the row in its file, as people count there.
        values: by column.
        names: role → its columns in this row.
        within: the column whose cell contains this entry, for messages; None for a complete row.
        cleaner: removes markup from texts.
    """

    number: int
    values: Mapping[str, Any]
    names: Mapping[str, Sequence[str]]
    within: str | None = None
    cleaner: TextCleaner = field(default_factory=TextCleaner)

    def error(self, role: str, problem: str) -> FieldError:
        """A problem of a role's cell."""
        if self.within is not None:
            return FieldError(f"field {self.within!r}: its {role!r} {problem}")
        return FieldError(f"field {self.names.get(role, (role,))[0]!r}: {problem}")

    def has(self, role: str) -> bool:
        """Whether one of its cells has a value."""
        return any(not is_empty(self.values.get(column)) for column in self.names.get(role, ()))

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
        text = self.cleaner.clean(self._raw_text(role), self.number)
        if all(unicodedata.category(c) in _INVISIBLE for c in text):
            raise self.error(role, "has no visible characters but markup")
        return text

    def _raw_text(self, role: str) -> str:
        if not isinstance(value := self._single(role), str):
            raise self.error(role, f"must be a text, got {value!r}")
        return value

    def _single(self, role: str) -> Any:
        value = self.cell(role)
        if read_list(value) is not None:
            raise self.error(role, f"is a list, and must be one value: {one_line(str(value)[:80])}")
        return value

    def optional_text(self, role: str) -> str | None:
        """None if the cell is empty."""
        return self.text(role) if self.has(role) else None

    def name(self, role: str) -> str:
        """A name, which may be a whole number, true or false."""
        value = self._single(role)
        if isinstance(value, float) and value.is_integer():  # whole numbers in a column with gaps
            value = int(value)
        if not isinstance(value, int | str):
            raise self.error(role, f"must be a text or a whole number, got {value!r}")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def optional_name(self, role: str) -> str | None:
        """None if the cell is empty."""
        return self.name(role) if self.has(role) else None

    def number_in(self, role: str) -> float:
        """A finite number, also as text."""
        if (number := as_number(self.cell(role))) is not None:
            return number
        raise self.error(role, f"{self.cell(role)!r} is not a number")

    def list_in(self, role: str) -> list[Any]:
        """A list, also as text in JSON's or Python's notation; a plain text is a list of one."""
        value = self.cell(role)
        is_plain = isinstance(value, str) and not value.lstrip().startswith("[")
        if (items := [value] if is_plain else read_list(value)) is None:
            raise self.error(role, f'is not a list, as ["one", "two"]: {value!r}')
        return items

    def marked_text(self) -> tuple[str, Span | None]:
        """The text, and the offsets of the span that the row marks in it.

        A title, if there is one, precedes the text, or replaces an empty one; spans count without it.
        """
        title = self.optional_text("title")
        is_title = title is not None and not self.has("text")
        raw = title if title is not None and is_title else self._raw_text("text")
        if ends := self._ends(raw):
            # They count the characters of the file; markup is removed around them.
            marked = _SPAN_END.join((raw[: ends[0]], raw[slice(*ends)], raw[ends[1] :]))
            parts = self.cleaner.clean(marked, self.number).split(_SPAN_END)
            if len(parts) < 3 or not parts[1]:  # a span of nothing but markup
                parts = marked.split(_SPAN_END)
            text, ends = "".join(parts), (len(parts[0]), len(parts[0] + parts[1]))
        else:
            text, words = raw if is_title else self.text("text"), self.optional_text("span")
            if words is not None and (ends := find_span(text, words)) is None:
                raise self.error("span", f"{words!r} is not in the text {text!r}")
        before = "" if title is None or is_title else f"{title} "
        return before + text, ends and (ends[0] + len(before), ends[1] + len(before))

    def _ends(self, text: str) -> Span | None:
        """The ends of a span that the row gives as numbers, checked."""
        if not (self.has("span_start") or self.has("span_end")):
            return None
        start, end = self.number_in("span_start"), self.number_in("span_end")
        if not 0 <= start < end <= len(text) or start % 1 or end % 1:
            problem = f"{start:g}–{end:g} is not a valid range in a text of {len(text)} characters"
            raise self.error("span_start", problem)
        ends = int(start), int(end)
        words = self.optional_text("span")
        if words is not None and find_span(text[slice(*ends)], words) != (0, ends[1] - ends[0]):
            raise self.error("span", f"is {words!r}, but the text has {text[slice(*ends)]!r} there")
        return ends

    def entries(self, role: str, *, several: bool = False) -> list[UserRecord]:
        """The texts of a role, each as a record: a text, or an object.

        An object has `text` or `title`, and perhaps `span`, `group` and `meaning`; the span of the row is
        that of a single entry without one.

        Args:
            several: those of all its columns, and of lists in them; otherwise its only one.
        """
        if several:
            filled = (c for c in self.names.get(role, ()) if not is_empty(self.values.get(c)))
            cells = [(column, text) for column in filled for text in self._texts(role, self.values[column])]
        else:
            cells = [(self.names.get(role, (role,))[0], self.cell(role))]
        roles = {part: part.replace("span", SPAN_OF[role]) for part in SPAN_PARTS}
        marks = {part: self.names[name] for part, name in roles.items() if self.has(name)}
        if marks and len(cells) > 1:
            problem = 'there are several texts; write each as an object: {"text": …, "span": …}'
            raise self.error(roles[next(iter(marks))], problem)
        records = []
        for column, entry in cells:
            is_object = isinstance(entry, dict)
            own = {key: [key] for key in entry if key in _ENTRY} if is_object else {"text": [column]}
            names = own if own.keys() & roles.keys() else {**marks, **own}
            values = {**self.values, **(entry if is_object else {column: entry})}
            within = column if is_object else None
            records.append(UserRecord(self.number, values, names, within, self.cleaner))
        return records

    def _texts(self, role: str, cell: Any) -> list[Any]:
        """The texts in a cell: a list, also as text in a CSV, or one text such as "[Laughter] No."."""
        texts = read_list(cell)
        if texts is not None and (texts is cell or all(isinstance(text, str | dict) for text in texts)):
            return texts
        if isinstance(cell, str) and _LIST.fullmatch(cell.strip()):
            raise self.error(role, f'is a list that cannot be read ({cell:.60}): write JSON, ["…", "…"]')
        return [cell]


class UserTable:
    """A table's rows, in the first form that its columns make.

    Args:
        source: the table, or its file.
        forms: that it may have.
        chosen: role → the column that the user says has it.
        option: with which users choose. Of several columns of a role that with its first name is taken.

    Attributes:
        form: of its rows, once they are read.
        columns: those of any row.
        names: role → the columns that have it.
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
        self.form, self._forms, self._chosen, self._option = forms[0], forms, chosen or {}, option
        self.columns: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.left_out: set[str] = set()

    def read(self, make: Callable[[UserRecord], T], rows: Iterable[Row] | None = None) -> Iterator[T]:
        """What `make` returns for each row; it raises FieldError for a problem.

        Args:
            rows: in place of the source's.

        Raises:
            UserError: at once, if the columns make no form, or the user's mapping is wrong; after the last
                row, naming row and field of all problems.
        """
        rows = list(self.source.rows() if rows is None else rows)
        if not rows:
            raise UserError("there is no row", file=self.source.name)
        self.columns = self.columns or list(dict.fromkeys(column for row in rows for column in row.values))
        self._choose_columns()
        self._read_marks(rows)
        cleaner, missing = TextCleaner(), dict.fromkeys(self.columns)  # in JSON lines, of some rows
        records = (UserRecord(row.number, missing | row.values, self.names, None, cleaner) for row in rows)
        yield from read_checked(records, make, self.source.name, _row_name)
        cleaner.log(self.source.name)

    def log_unread(self) -> None:
        """Log the columns that have no role, or are not the first with theirs, if there are any."""
        read = {*_IDS, *(normalise(columns[0]) for columns in self.names.values())}
        if unread := [one_line(column) for column in self.columns if normalise(column) not in read]:
            log.info("%s: not read: %s", self.source.name, list_names(unread))

    def _read_marks(self, rows: Sequence[Row]) -> None:
        """Spans where most texts of a column mark one part, and no column has spans; without the marks."""
        for role, span in SPAN_OF.items():
            ends = [f"{span}_start", f"{span}_end"]
            if span not in self.form.roles or {span, *ends} & self.names.keys():
                continue
            for column, kind in product(self.names.get(role, ())[:1], MARKS):
                marked = [read_marks(row.values.get(column), kind) for row in rows]
                num_marked = len(rows) - marked.count(None)
                if 2 * num_marked <= len(rows):
                    continue
                message = "%s, field %r: %d of %d texts have one part marked as %s, which is the %s"
                log.warning(message, self.source.name, column, num_marked, len(rows), kind, span)
                self.names |= {end: [end] for end in ends}
                for row, marks in zip(rows, marked, strict=True):
                    text_and_ends = marks or (row.values.get(column), None, None)
                    row.values.update(zip((column, *ends), text_and_ends, strict=True))

    def _choose_columns(self) -> None:
        """The first form that fits the columns and has all roles in the user's mapping, and their roles."""
        for role, column in self._chosen.items():
            if not any(form.role_of(role) for form in self._forms):
                roles = ", ".join(dict.fromkeys(role for form in self._forms for role in form.roles))
                raise UserError(f"{self._option}: {role!r} is not one of {roles}", file=self.source.name)
            if others := [other for other, same in self._chosen.items() if same == column][1:]:
                problem = f"{self._option}: the column {column!r} is given for {role} and {others[0]}"
                raise UserError(problem, file=self.source.name)
            if column not in self.columns:
                near = difflib.get_close_matches(column, self.columns, 1) or self.columns
                near_names = list_names(list(map(repr, near)))
                problem = f"there is no column {column!r}, which {self._option} names (is it {near_names}?)"
                raise UserError(problem, file=self.source.name)
        header = [column for column in self.columns if column not in self.left_out]
        for form in self._forms:
            names = form.recognise(header, self._chosen)
            if all(map(form.role_of, self._chosen)) and names.keys() >= set(form.required):
                break
        else:
            raise self._no_form()
        self.form, self.names = form, names

    def _no_form(self) -> UserError:
        titles = "; ".join(dict.fromkeys(f"{f.name}: {', '.join(f.required)}" for f in self._forms))
        advice = f", or map them with {self._option}={{<name>: <column>}}" if self._option else ""
        aliases = {alias for form in self._forms for names in form.roles.values() for alias in names}
        for column in self.columns:
            near = difflib.get_close_matches(normalise(column), aliases, 1, 0.8)
            if near and near[0] != normalise(column):
                advice += f"; {column!r} (is it {near[0]!r}?)"
        have = ", ".join(map(one_line, self.columns)) or "none"
        problem = f"its columns ({have}) are not those of {titles}. Rename them{advice}"
        return UserError(problem, file=self.source.name)


def _row_name(record: UserRecord) -> str:
    named_by = next((record.names[role][0] for role in _NAMING if role in record.names), "")
    return name_row(record.number, record.values, named_by)


def is_empty(value: object) -> bool:
    """Whether a cell has no value, only blanks, or an empty list."""
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def unique() -> Callable[[UserRecord, str], str]:
    """A check of ids, each of which only one row may have; it returns the id."""
    rows: dict[str, int] = {}

    def check(record: UserRecord, id_: str) -> str:
        if id_ in rows:
            raise record.error("id", f"{id_!r} occurs twice (first in row {rows[id_]})")
        rows[id_] = record.number
        return id_

    return check


def read_list(cell: Any) -> list[Any] | None:
    """A list, also as text in JSON's or Python's notation; None if it is something else."""
    if not (isinstance(cell, str) and cell.lstrip().startswith("[")):
        return cell if isinstance(cell, list) else None
    try:
        parsed = parse_json(cell)
    except ValueError:
        return parse_list(cell)
    return parsed if isinstance(parsed, list) else None
