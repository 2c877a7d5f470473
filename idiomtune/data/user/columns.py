"""Values of columns: how names are compared, conditions of rows, marks around a span."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

from idiomtune.errors import UserError

# What may mark the span of a text; within brackets only words, since they also have lists and remarks.
MARKS = {"<b>…</b>": r"<b>([^<>]+)</b>", "[…]": r"\[([\w' -]+)\]"}


def value_key(value: Any) -> str:
    """Equal for values that differ only in case, in blanks, in how accents are encoded, or as 1 and 1.0."""
    text = " ".join(unicodedata.normalize("NFC", str(value)).casefold().split())
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def read_condition(text: str, option: str) -> tuple[str, Callable[[Any], bool]]:
    """Column and test of a condition: `label=1`, `label=1|2`, `label!=0`, `score>=0.5`.

    Raises:
        UserError: if it is none of these.
    """
    match = re.fullmatch(r"\s*(.*?)\s*(>=|!=|=)\s*(.*\S)\s*", text, re.DOTALL)
    if match is None or (match[2] == ">=" and as_number(match[3]) is None):
        advice = "a column and its value, such as label=1, label=1|2, label!=0 or score>=0.5"
        raise UserError(f"{option} is {advice}; got {text!r}")
    return match[1], partial(_holds, match[2], match[3])


def _holds(sign: str, right: str, value: Any) -> bool:
    if sign == ">=":
        number, least = as_number(value), as_number(right)
        return number is not None and least is not None and number >= least
    key = "" if value is None else value_key(value)
    return (key in {value_key(part) for part in right.split("|")}) == (sign == "=")


def as_number(value: object) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):  # as 1_000
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def read_marks(text: object, kind: str) -> tuple[str, int, int] | None:
    """A text without marks of a kind, and the ends of the one part that they mark; None without.

    Between marked words, blanks are marked too: `<b>broke</b> <b>the ice</b>` is one part.
    """
    if not isinstance(text, str):
        return None
    start_mark, end_mark = map(re.escape, kind.split("…"))
    text = re.sub(rf"{end_mark}(\s+){start_mark}", r"\1", text)
    matches = [*re.finditer(MARKS[kind], text)]
    if len(matches) != 1 or matches[0][0] == text.strip():
        return None
    start, end = matches[0].span()
    bare = text[:start] + matches[0][1] + text[end:]
    is_nested = any(mark in bare for mark in kind.split("…"))
    return None if is_nested else (bare, start, start + len(matches[0][1]))
