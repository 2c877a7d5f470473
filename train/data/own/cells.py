"""Cells of users' tables: texts, names, numbers and spans, checked alike for training and for scoring."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from train.requests import find_span

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories: controls, formats, blanks
SPAN_PARTS = ("span", "span_start", "span_end")


class CellError(Exception):
    """What is wrong with a cell, in words.

    Attributes:
        part: which of the cells of a span it is, as `span1_start`; else "".
    """

    def __init__(self, problem: str, part: str = "") -> None:
        super().__init__(problem)
        self.part = part


def normalised(column: str) -> str:
    """A column's name as names are compared: in lower case, with _ between words."""
    return column.strip().lower().replace("-", "_").replace(" ", "_")


def is_empty(value: Any) -> bool:
    """Whether nothing stands in a cell: no value, blanks alone, or a list of nothing."""
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def as_text(value: Any) -> str:
    """Raises CellError if it is no text, or an empty one."""
    if is_empty(value):
        raise CellError("is blank" if isinstance(value, str) and value else "is empty")
    if not isinstance(value, str):
        raise CellError(f"must be a text, found {value!r}")
    if "\0" in value:
        raise CellError("holds a NUL character")
    if all(unicodedata.category(character) in _INVISIBLE for character in value):
        raise CellError(f"holds invisible characters alone: {value!a}")
    return value


def as_name(value: Any) -> str:
    """A name, which may be a whole number. Raises CellError if it is neither."""
    if isinstance(value, float) and value.is_integer():  # as tables with gaps hold whole numbers
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise CellError(f"must be a text or a whole number, found {value!r}")
    return str(value)


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


def span_offsets(text: str, span: Any, start: Any, end: Any, name: str = "span") -> tuple[int, int] | None:
    """Where the span is: at its ends, or where its words first occur; None if nothing is given.

    Args:
        span: its words.
        start, end: character offsets [start, end).
        name: of the span's cell, for messages; `<name>_start` and `<name>_end` are its ends'.

    Raises:
        CellError: saying what is wrong with it, and with which cell.
    """
    if is_empty(start) != is_empty(end):
        given, missing = (
            (f"{name}_end", f"{name}_start") if is_empty(start) else (f"{name}_start", f"{name}_end")
        )
        raise CellError(f"needs {missing} beside it", given)
    words = None if is_empty(span) else span
    if words is not None and not isinstance(words, str):
        raise CellError(f"must be a text, found {span!r}", name)
    if is_empty(start):
        if words is None:
            return None
        found = find_span(text, words)
        if found is None:
            raise CellError(f"{words!r} is not in the text {text!r}", name)
        return found
    first, last = as_number(start), as_number(end)
    if first is None or last is None or not (0 <= first < last <= len(text)) or first % 1 or last % 1:
        raise CellError(f"{start}–{end} is no stretch of a text of {len(text)} characters", f"{name}_start")
    offsets = int(first), int(last)
    if words is not None and text[slice(*offsets)] != words:
        raise CellError(f"is {words!r}, but at {start}–{end} stands {text[slice(*offsets)]!r}", name)
    return offsets
