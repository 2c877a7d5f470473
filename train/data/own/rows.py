"""Rows of a user's tables as examples, each checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train.data.own.cells import SPAN_PARTS, CellError, as_name, as_number, as_text, is_empty, span_offsets
from train.data.own.columns import SEVERAL, Columns
from train.io.records import parse_json


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, and what is known of it.

    Attributes:
        span: character offsets [start, end) in it.
        group: what it is about, as its expression.
        meaning: which meaning of the group it has.
    """

    text: str
    span: tuple[int, int] | None = None
    group: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A row.

    Attributes:
        number: of the row in its file; a header is row 1.
        sentences: the anchor, its positives, its negatives; the two of a scored pair; or one sentence.
        num_positives: how many of the sentences are positives.
        label: of a labelled sentence.
        usage: the kind of a sentence, of which each batch gets its share.
        score: of a scored pair.
    """

    number: int
    sentences: tuple[Sentence, ...]
    num_positives: int = 0
    label: str | None = None
    usage: str | None = None
    score: float | None = None
    weight: float = 1.0
    instruction: str | None = None


_MAX_WEIGHT = 1e9  # more than that overflows in a sum of products in float32


class RowReader:
    """Turns rows with these columns into examples. A negative that is the row's own anchor is left out."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.echoes: list[int] = []  # rows that name their anchor as a negative
        self._required = {"scored": ["score"], "pairs": [], "sentences": ["label"]}[columns.form]
        if columns.form == "sentences" and "label" not in columns.by_role:
            self._required = ["group"]

    def read(self, number: int, row: Mapping[str, Any]) -> Example:
        """Raises CellError, which names row and field of the first problem."""
        for role in self._required:
            if is_empty(row.get(column := self.columns.by_role[role][0])):
                raise _problem(number, column, "is empty")
        try:
            return self._example(number, row)
        except _FieldError as error:
            raise _problem(number, error.column, str(error)) from None

    def _example(self, number: int, row: Mapping[str, Any]) -> Example:
        group, meaning = self._name(row, "group"), self._name(row, "meaning")
        if self.columns.form == "pairs":
            (anchor,) = self._sentences(row, "anchor", group, meaning)
            positives = self._sentences(row, "positive", group, meaning)
            named = self._sentences(row, "negative", group, None)
            negatives = [s for s in named if (s.text, s.span) != (anchor.text, anchor.span)]
            self.echoes += [number] * (len(named) - len(negatives))
            texts = {sentence.text for sentence in positives}
            if same := [s.text for s in negatives if s.text in texts]:
                raise _FieldError(self.columns.one("negative"), f"{same[0]!r} is a positive of the row too")
            sentences, num_positives = [anchor, *positives, *negatives], len(positives)
        else:
            roles = ("sentence1", "sentence2") if self.columns.form == "scored" else ("text",)
            sentences = [s for role in roles for s in self._sentences(row, role, group, meaning)]
            num_positives = len(roles) - 1
        weight = self._number(row, "weight")
        if weight is not None and not 0 <= weight <= _MAX_WEIGHT:
            problem = f"must be from 0 to {_MAX_WEIGHT:g}, got {weight:g}"
            raise _FieldError(self.columns.one("weight"), problem)
        return Example(
            number,
            tuple(sentences),
            num_positives,
            label=self._name(row, "label"),
            usage=self._name(row, "usage"),
            score=self._number(row, "score"),
            weight=1.0 if weight is None else weight,
            instruction=self._text(row, "instruction"),
        )

    def _sentences(
        self, row: Mapping[str, Any], role: str, group: str | None, meaning: str | None
    ) -> list[Sentence]:
        """The texts of a role: one; of positives one or more; of negatives any number."""
        columns = self.columns.by_role.get(role, ())
        entries = []
        for column in columns:
            cell = row.get(column)
            if role not in SEVERAL:
                entries.append((column, cell))
            elif not is_empty(cell):  # one of several columns is, or there is no negative
                entries += [(column, entry) for entry in _entries(cell)]
        if not entries and role != "negative":
            raise _FieldError(columns[0], "is empty")
        spans = [c for c in self.columns.spans.get(role, {}).values() if not is_empty(row.get(c))]
        if spans and len(entries) > 1:
            problem = 'there are several texts; write each as an object: {"text": …, "span": …}'
            raise _FieldError(spans[0], problem)
        return [self._sentence(row, role, column, entry, (group, meaning)) for column, entry in entries]

    def _sentence(
        self,
        row: Mapping[str, Any],
        role: str,
        column: str,
        entry: Any,
        labels: tuple[str | None, str | None],
    ) -> Sentence:
        """One text: a string, or an object with `text` (and `title`, `span`, `group`, `meaning`)."""
        spans = self.columns.spans.get(role, {})
        parts = {part: row.get(spans[part]) if part in spans else None for part in SPAN_PARTS}
        group, meaning = labels
        before = ""
        try:
            if isinstance(entry, dict):
                if any(part in entry for part in SPAN_PARTS):
                    spans, parts = {}, {part: entry.get(part) for part in SPAN_PARTS}
                group, meaning = _own_name(entry, "group", group), _own_name(entry, "meaning", meaning)
                title, entry = entry.get("title"), entry.get("text")
                if is_empty(entry) and is_empty(title):
                    raise CellError("has an object without 'text'")
                if is_empty(entry):
                    entry, title = title, None
                before = "" if is_empty(title) else f"{as_text(title)} "  # as BEIR and Tevatron read it
            text = as_text(entry)
            span = span_offsets(text, parts["span"], parts["span_start"], parts["span_end"])
        except CellError as error:
            raise _FieldError(spans.get(error.part, column), str(error)) from None
        if span is not None:
            span = span[0] + len(before), span[1] + len(before)
        return Sentence(before + text, span, group, meaning)

    def _name(self, row: Mapping[str, Any], role: str) -> str | None:
        """A cell that names something; None where it is empty or has no column."""
        column = self.columns.one(role)
        if column is None or is_empty(row.get(column)):
            return None
        try:
            return as_name(row[column]).strip()
        except CellError as error:
            raise _FieldError(column, str(error)) from None

    def _text(self, row: Mapping[str, Any], role: str) -> str | None:
        column = self.columns.one(role)
        if column is None or is_empty(row.get(column)):
            return None
        try:
            return as_text(row[column])
        except CellError as error:
            raise _FieldError(column, str(error)) from None

    def _number(self, row: Mapping[str, Any], role: str) -> float | None:
        column = self.columns.one(role)
        if column is None or is_empty(row.get(column)):
            return None
        number = as_number(row[column])
        if number is None:
            raise _FieldError(column, f"{row[column]!r} is no number")
        return number


class _FieldError(Exception):
    """A problem of a column's cell."""

    def __init__(self, column: str | None, problem: str) -> None:
        super().__init__(problem)
        self.column = column


def _problem(number: int, column: str | None, problem: str) -> CellError:
    return CellError(f"row {number}, field {column!r}: {problem}")


def _entries(cell: Any) -> list[Any]:
    """The texts in a cell: a list, also as JSON's in a CSV, or one text."""
    if isinstance(cell, list):
        return cell
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            parsed = parse_json(cell)
        except ValueError:
            return [cell]  # a text such as "[Laughter] No."
        if isinstance(parsed, list) and parsed and all(isinstance(entry, str | dict) for entry in parsed):
            return parsed
    return [cell]


def _own_name(entry: Mapping[str, Any], name: str, default: str | None) -> str | None:
    """What an object says of itself, else what its row says."""
    value = entry.get(name)
    if is_empty(value):
        return default
    try:
        return as_name(value).strip()
    except CellError as error:
        raise CellError(f"its {name!r} {error}") from None
