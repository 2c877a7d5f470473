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


def read_condition(text: str, option: str) -> list[tuple[str, Callable[[Any], bool]]]:
    """Columns and tests of a condition: `label=1`, `label=1|2`, `label!=0`, `score>=0.5`; ` & ` between them.

    Raises:
        UserError: if it is none of these.
    """
    tests: list[tuple[str, Callable[[Any], bool]]] = []
    for part in text.split(" & "):
        words = [word.strip() for word in re.split("(>=|!=|=)", part, maxsplit=1)]
        column, sign, right = (*words, "", "")[:3]
        if not right or (sign == ">=" and as_number(right) is None):
            advice = "a column and its value, such as label=1, label!=0 or score>=0.5; several between ' & '"
            raise UserError(f"{option} is {advice}; got {text!r}")
        tests.append((column, partial(_holds, sign, right)))
    return tests


def _holds(sign: str, right: str, value: Any) -> bool:
    if sign == ">=":
        number, least = as_number(value), as_number(right)
        return number is not None and least is not None and number >= least
    key = "" if value is None else value_key(value)
    return (key in {value_key(part) for part in right.split("|")}) == (sign == "=")


def as_number(value: Any) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):  # as 1_000
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def read_marks(text: Any, kind: str) -> tuple[str, int, int, int] | None:
    """A text without marks of a kind, the ends of what they mark, and the number of its parts; None without.

    Blanks between two parts belong to both: `<b>broke</b> <b>the ice</b>` is one.
    """
    before, *parts = re.split(MARKS[kind], text) if isinstance(text, str) else ("",)
    bare, after = before + "".join(parts), "".join(parts[-1:])
    if not parts or any(mark in bare for mark in kind.split("…")) or not (before + after).strip():
        return None
    num_parts = 1 + sum(bool(between.strip()) for between in parts[1:-1:2])
    return bare, len(before), len(bare) - len(after), num_parts
