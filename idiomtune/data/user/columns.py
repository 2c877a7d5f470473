"""Values of columns: counts of those without a role, conditions of rows, marks around a span."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from idiomtune.errors import UserError
from idiomtune.io.files import one_line

Span = tuple[int, int]

_MAX_VALUES = 20  # different ones; a column with more of them has names or texts
_MAX_NUMBERS = 101  # of whole numbers, such as 0 to 100
_MAX_LONG = 40  # characters of a value that may be a label
_USUALLY_TRAINED = ("train", "accept", "true", "yes")  # for the example of a condition alone
_RESERVED = r"""[|&"'=,{}]"""  # in a condition, or around it on a command line

# How spans are marked; `*…*` and `_…_` count only around whole words.
_MARKS = {
    "<…>…</…>": r"<(?P<tag>\w+)(?: [^<>]*)?>(?P<inside>[^<>]+)</(?P=tag)>",
    "[…]…[/…]": r"\[(?P<tag>\w+)\](?P<inside>[^\[\]]+)\[/(?P=tag)\]",
    "[[…]]": r"(?:\[\[|\{\{|<<)(?P<inside>[^][{}<>]+)(?:\]\]|\}\}|>>)",
    "**…**": r"(?P<tag>\*\*|__|##|@@|==|\|\|)(?P<inside>\w(?:.*?\S)?)(?P=tag)",
    "*…*": r"(?<![\w*_])(?P<tag>[*_])(?P<inside>\w(?:[^*_]*[^\s*_])?)(?P=tag)(?![\w*_])",
}


def value_key(value: Any) -> str:
    """Equal for values that differ only in case, in blanks, in how accents are encoded, or as 1 and 1.0."""
    text = " ".join(unicodedata.normalize("NFC", str(value)).casefold().split())
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


class ColumnValues:
    """The values of a column: how many rows have each, of the first hundred values.

    Attributes:
        counts: key of a value → its rows, without empty cells; no more are counted once they are many.
        num_rows: all rows, also those without a value.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.num_rows = 0

    def add(self, value: Any) -> None:
        """Count a value; of a long one its beginning."""
        is_counted = value is not None and value != [] and len(self.counts) <= _MAX_NUMBERS
        if is_counted and (key := value_key(str(value)[: _MAX_LONG + 1])):
            self.counts[key] += 1

    @property
    def are_short(self) -> bool:
        """Whether all may be labels."""
        return all(len(key) <= _MAX_LONG for key in self.counts)

    @property
    def numbers(self) -> list[float]:
        """Those that are numbers, in their order."""
        return sorted(number for key in self.counts if (number := _number(key)) is not None)

    @property
    def are_numbers(self) -> bool:
        """Whether all are."""
        return 0 < len(self.counts) == len(self.numbers)

    @property
    def have_fractions(self) -> bool:
        """Whether any number is not whole: then they measure something, and are no classes or names."""
        return not all(number.is_integer() for number in self.numbers)

    @property
    def num_empty(self) -> int:
        return self.num_rows - self.counts.total()

    @property
    def num_distinct(self) -> int:
        """Different values; empty cells are one."""
        return len(self.counts) + (self.num_empty > 0)

    @property
    def may_sort_rows(self) -> bool:
        """Whether there are few values in many rows, or fractions: no names of rows, and no texts."""
        num = self.num_distinct
        if self.are_numbers and num > 1:
            return self.have_fractions or num <= min(_MAX_NUMBERS, self.num_rows - 1)
        return self.are_short and 1 < num <= _MAX_VALUES and num <= max(2, self.num_rows / 2) < self.num_rows

    def __str__(self) -> str:
        """As `accept (12 rows), reject (3 rows)`, the most frequent first."""
        if self.are_numbers and len(self.counts) > 6:
            return f"numbers from {self.numbers[0]:g} to {self.numbers[-1]:g}"
        counts = [*self.counts.most_common(6), *([("empty", self.num_empty)] if self.num_empty else [])]
        shown = [f"{one_line(key)} ({num} row{'s' if num > 1 else ''})" for key, num in counts]
        return ", ".join(shown) + ", …" * (len(self.counts) > 6)

    def condition(self, column: str) -> str:
        """A condition for some of the rows, as `answer=accept`: an example of how to write it."""
        (value, num), *others = self.counts.most_common()
        usual = next((key for key in _USUALLY_TRAINED if key in self.counts), value)
        if self.are_numbers and others:
            half = self.numbers[len(self.numbers) // 2]
            return f"{column}={half:g}" if len(self.numbers) == 2 else f"{column}>={half:g}"
        sign = "!=" if self.num_empty > num and usual == value else "="
        return f"{column}{sign}{'<value>' if re.search(_RESERVED, usual) else usual}"


def read_condition(text: str, option: str) -> list[tuple[str, Callable[[Any], bool]]]:
    """Columns and tests of a condition: `label=1`, `label=1|2`, `label!=0`, `score>=0.5`; ` & ` between them.

    Raises:
        UserError: if it is none of these.
    """
    tests: list[tuple[str, Callable[[Any], bool]]] = []
    for part in text.split(" & "):
        words = [word.strip() for word in re.split("(>=|!=|=)", part, maxsplit=1)]
        column, sign, right = (*words, "", "")[:3]
        if not right or (sign == ">=" and _number(right) is None):
            advice = "a column and its value, such as label=1, label!=0 or score>=0.5; several between ' & '"
            raise UserError(f"{option} is {advice}; got {text!r}")
        tests.append((column, partial(_holds, sign, right)))
    return tests


def _holds(sign: str, right: str, value: Any) -> bool:
    if sign == ">=":
        number, least = _number(value), _number(right)
        return number is not None and least is not None and number >= least
    key = "" if value is None else value_key(value)
    return (key in {value_key(part) for part in right.split("|")}) == (sign == "=")


def _number(value: Any) -> float | None:
    try:
        return float(value_key(value))
    except ValueError:
        return None


def remove_marks(text: str, kind: str) -> tuple[str, list[Span]]:
    """The text without marks of a kind, and the marked stretches; a blank does not end a stretch."""
    bare, stretches, end = "", list[Span](), 0
    for match in re.finditer(_MARKS[kind], text):
        bare += text[end : match.start()]
        start = len(bare)
        if stretches and not bare[stretches[-1][1] :].strip():
            start = stretches.pop()[0]
        bare, end = bare + match["inside"], match.end()
        stretches.append((start, len(bare)))
    return bare + text[end:], stretches


def find_marks(texts: Sequence[str]) -> Iterator[tuple[str, int, int, str]]:
    """Kinds of marks with the number of texts, the number of texts with one marked part, and an example."""
    for kind in _MARKS:
        marked = [(text, *remove_marks(text, kind)) for text in texts]
        marked = [(text, bare, stretches) for text, bare, stretches in marked if stretches]
        num_single = sum(len(s) == 1 and bare.strip() != bare[slice(*s[0])].strip() for _, bare, s in marked)
        if marked:
            yield kind, len(marked), num_single, marked[0][0]
