"""Rows of a user's tables as examples, each checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from train.data.own.columns import Columns
from train.io.text import has_lone_surrogate
from train.requests import find_span


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


@dataclass
class RowReader:
    """Turns the rows of a table into examples.

    Attributes:
        problems: what is wrong with the rows that gave none, by row and field.
    """

    columns: Columns
    problems: list[str] = field(default_factory=list)

    def read(self, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Example]:
        """The examples of the rows without a problem."""
        for number, row in rows:
            found: list[str] = []
            example = self._example(number, row, found)
            if found:
                self.problems += [f"row {number}, {problem}" for problem in found]
            elif example is not None:
                yield example

    def _example(self, number: int, row: Mapping[str, Any], found: list[str]) -> Example | None:
        columns = self.columns
        label, usage = self._name(row, "label", found), self._name(row, "usage", found)
        group, meaning = self._name(row, "group", found), self._name(row, "meaning", found)
        weight = self._number(row, "weight", found)
        if weight is not None and weight < 0:
            found.append(f"field {columns.one('weight')!r}: is negative: {weight:g}")
        instruction = self._name(row, "instruction", found)
        score = self._number(row, "score", found)
        if columns.form == "scored" and score is None and not found:
            found.append(f"field {columns.one('score')!r}: is empty")
        if columns.form == "sentences" and "label" in columns.by_role and label is None and not found:
            found.append(f"field {columns.one('label')!r}: is empty")
        if columns.form == "sentences" and "label" not in columns.by_role and group is None and not found:
            found.append(f"field {columns.one('group')!r}: is empty")
        sentences: list[Sentence] = []
        num_positives = 0
        if columns.form == "pairs":
            anchor = self._sentences(row, "anchor", group, meaning, found)
            positives = self._sentences(row, "positive", group, meaning, found)
            negatives = self._sentences(row, "negative", group, None, found)
            if not positives and not found:
                found.append(f"field {columns.one('positive')!r}: is empty")
            if len(anchor) > 1:
                found.append(f"field {columns.one('anchor')!r}: is a list; an anchor is one text")
            same = {s.text for s in positives} & {s.text for s in negatives}
            if same:
                found.append(f"field {columns.one('negative')!r}: {min(same)!r} is a positive of the row too")
            sentences, num_positives = [*anchor, *positives, *negatives], len(positives)
        else:
            roles = ("sentence1", "sentence2") if columns.form == "scored" else ("text",)
            for role in roles:
                given = self._sentences(row, role, group, meaning, found)
                if len(given) > 1:
                    found.append(f"field {columns.one(role)!r}: is a list; it is to be one text")
                sentences += given
            num_positives = len(roles) - 1
        if found:
            return None
        return Example(
            number,
            tuple(sentences),
            num_positives,
            label,
            usage,
            score,
            1.0 if weight is None else weight,
            instruction,
        )

    def _sentences(
        self, row: Mapping[str, Any], role: str, group: str | None, meaning: str | None, found: list[str]
    ) -> list[Sentence]:
        """The texts of a role; an empty cell of a role with several columns is none."""
        columns = self.columns.by_role.get(role, ())
        sentences: list[Sentence] = []
        for column in columns:
            value = row.get(column)
            entries = value if isinstance(value, list) else [value]
            for entry in entries:
                if _is_empty(entry):
                    if role == "negative" or (len(columns) > 1 and role == "positive"):
                        continue
                    found.append(f"field {column!r}: is empty")
                    continue
                sentence = self._sentence(row, role, column, entry, (group, meaning), found)
                if sentence is not None:
                    sentences.append(sentence)
        if role in ("positive", "negative") and role in self.columns.spans and len(sentences) > 1:
            found.append(
                f"field {next(c for c in self.columns.spans[role] if c)!r}: there are several texts; write "
                'each as an object: {"text": …, "span": …}'
            )
        return sentences

    def _sentence(
        self,
        row: Mapping[str, Any],
        role: str,
        column: str,
        entry: Any,
        labels: tuple[str | None, str | None],
        found: list[str],
    ) -> Sentence | None:
        """One text: a string, or an object with `text` (and `title`, `span`, `group`, `meaning`)."""
        spans = self.columns.spans.get(role, ("", "", ""))
        span, start, end = (row.get(c) if c else None for c in spans)
        group, meaning = labels
        if isinstance(entry, dict):
            group, meaning = entry.get("group", group), entry.get("meaning", meaning)
            span, start, end = (
                entry.get("span", span),
                entry.get("span_start", start),
                entry.get("span_end", end),
            )
            title = entry.get("title")
            entry = entry.get("text")
            if isinstance(title, str) and title.strip() and isinstance(entry, str):
                entry = f"{title} {entry}"  # as BEIR and Tevatron read it
            if _is_empty(entry):
                found.append(f"field {column!r}: has an object without 'text'")
                return None
            for name, value in (("group", group), ("meaning", meaning)):
                if not isinstance(value, str | int | None):
                    found.append(f"field {column!r}: its {name!r} is to be a text, found {value!r}")
                    return None
        if not isinstance(entry, str):
            found.append(f"field {column!r}: is to be a text, found {entry!r}")
            return None
        if has_lone_surrogate(entry):
            found.append(f"field {column!r}: holds half a character (a lone surrogate)")
            return None
        offsets = None
        try:
            offsets = _offsets(entry, span, start, end)
        except ValueError as error:
            found.append(f"field {next((c for c in spans if c), column)!r}: {error}")
        return Sentence(entry, offsets, _as_name(group), _as_name(meaning))

    def _name(self, row: Mapping[str, Any], role: str, found: list[str]) -> str | None:
        """A cell that names something; None where it is empty or has no column."""
        column = self.columns.one(role)
        value = row.get(column) if column else None
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            found.append(f"field {column!r}: is to be a text or a whole number, found {value!r}")
            return None
        return _as_name(value)

    def _number(self, row: Mapping[str, Any], role: str, found: list[str]) -> float | None:
        column = self.columns.one(role)
        value = row.get(column) if column else None
        if value is None or value == "":
            return None
        try:
            number = math.nan if isinstance(value, bool | list | dict) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            found.append(f"field {column!r}: is no number: {value!r}")
            return None
        return number


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _as_name(value: str | int | None) -> str | None:
    return None if value is None or str(value).strip() == "" else str(value).strip()


def _offsets(text: str, span: Any, start: Any, end: Any) -> tuple[int, int] | None:
    """Where the span is.

    Raises:
        ValueError: saying what is wrong with it.
    """
    if not (_is_empty(start) and _is_empty(end)):
        try:
            offsets = int(start), int(end)
        except (TypeError, ValueError):
            raise ValueError(f"the span's ends are no whole numbers: {start!r}, {end!r}") from None
        if not 0 <= offsets[0] < offsets[1] <= len(text):
            raise ValueError(
                f"the span {offsets[0]} to {offsets[1]} is not within the text of {len(text)} characters"
            )
        if not _is_empty(span) and text[slice(*offsets)] != span:
            raise ValueError(
                f"the span is {span!r}, but at {offsets[0]} to {offsets[1]} stands {text[slice(*offsets)]!r}"
            )
        return offsets
    if _is_empty(span):
        return None
    if not isinstance(span, str):
        raise ValueError(f"the span is to be a text, found {span!r}")
    found = find_span(text, span)
    if found is None:
        raise ValueError(f"the span {span!r} does not occur in {text!r}")
    return found
