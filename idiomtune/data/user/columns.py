"""Meanings of columns by their values: usages of expressions, judgements of pairs, marks around a span.

Few counters are kept of each column, whatever the size of the table.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from idiomtune.data.user.forms import normalise
from idiomtune.errors import UserError

Span = tuple[int, int]

_MAX_VALUES = 20  # different ones; a column with more of them has names, texts or measures
_MAX_LONG = 40  # characters of a value that may be a label
_MAX_GRADE, _MAX_SCORE = 10, 100  # of numbers that may say how right a pair is: whole ones, and others

# Kinds of words, in English, Portuguese, Spanish, German, Italian, French and Hebrew, without accents.
_FILE = (Path(__file__).parent / "words.tsv").read_text(encoding="utf-8")
_WORDS = dict(line.split("\t") for line in _FILE.replace("*", r"\w*").replace(" ", "|").splitlines())
_NOT = r"((not|non|no|nao|nicht|un|in|ir|dis|partially|somewhat) ?)"
_SENSE = r"(sens |sentido |senso )?"
_LETTERS = {*"ilfnmoqu?"}  # MAGPIE's and VNC-Tokens': idiomatic, literal, figurative, …, unclear
_SWITCHES = {"0", "1", "-1", "true", "false", "yes", "no", *"yno?"}
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


def _match(pattern: str, words: Iterable[str]) -> set[str]:
    return {word for word in words if re.fullmatch(pattern, word)}


def _word(key: str) -> str:
    """Without accents, with blanks between words."""
    letters = (c for c in unicodedata.normalize("NFD", key) if not unicodedata.combining(c))
    return re.sub("(?<!^)[-_ ]+", " ", "".join(letters)).strip()


def _name_words(column: str) -> list[str]:
    return normalise(re.sub("(?<=[a-z])(?=[A-Z])", "_", column)).strip("?").split("_")


class ColumnValues:
    """The values of a column: counts while they are few, and whether all of them are numbers.

    Attributes:
        counts: key of a value → how many rows have it.
        are_few: there are no more, and each is short.
        are_numbers, are_whole: all of them.
        low, high: the least and the greatest number.
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.are_few = self.are_numbers = self.are_whole = True
        self.low, self.high = float("inf"), float("-inf")
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        """Count a value, if it is a text or a number, and not empty."""
        may_tell = (self.are_few or self.are_numbers) and isinstance(value, str | int | float)
        if not may_tell or not (key := value_key(value)):
            return
        if self.are_numbers:
            try:
                number = float(key)
            except ValueError:
                self.are_numbers = False
            else:
                self.are_whole &= number.is_integer()
                self.low, self.high = min(self.low, number), max(self.high, number)
        if self.are_few:
            self.counts[key] += 1
            self.are_few = len(self.counts) <= _MAX_VALUES and len(key) <= _MAX_LONG

    def __str__(self) -> str:
        """As `1 (12 rows), 0 (3 rows)`, the most frequent first."""
        if self.are_numbers and len(self.counts) > 6:
            return f"numbers from {self.low:g} to {self.high:g}"
        shown = [f"{key} ({num} row{'s' if num > 1 else ''})" for key, num in self.counts.most_common(6)]
        return ", ".join(shown) + ", …" * (len(self.counts) > len(shown))

    def right_ones(self, column: str) -> str:
        """The most likely condition for a right pair, as `label=1`."""
        if self.are_numbers:
            middle, is_binary = (self.low + self.high) / 2, len(self.counts) == 2
            return f"{column}={self.high:g}" if is_binary else f"{column}>={middle:g}"
        right = (key for key in self.counts if re.fullmatch(_WORDS["right"], _word(key)))
        return f"{column}={next(right, min(self.counts))}"

    def usage_rank(self, column: str) -> tuple[bool, int]:
        """3, 2 or 1 if the values are usages of expressions in words, in letters, or as 0 and 1; else 0."""
        keys, names = {_word(key) for key in self.counts}, _name_words(column)
        literal, usages = (
            _match(rf"{_NOT}?{_SENSE}({words})( \w+)?", keys)
            for words in (_WORDS["literal"], f"{_WORDS['literal']}|{_WORDS['figurative']}")
        )
        is_named = bool(_match(_WORDS["usage_name"], names)) and "id" not in names
        rank = int(is_named and keys <= _SWITCHES)
        if keys <= _LETTERS and keys & {*"ifl"} and (is_named or (len(keys) > 1 and "l" in keys)):
            rank = 2
        if usages == keys or (literal and len(usages) > 1 and len(keys) <= 2 * len(usages)):
            rank = 3
        return len(keys) > 1, rank if keys and self.are_few else 0

    def may_judge(self, column: str) -> bool:
        """Whether the values may judge rows right or wrong: by words, the column's name, or few numbers."""
        keys, names = {_word(key) for key in self.counts}, _name_words(column)
        right = _match(f"(highly |very )?({_WORDS['right']})", keys)
        wrong = _match(f"{_WORDS['wrong']}|{_NOT}({_WORDS['right']})", keys) - right
        is_harmless = bool(_match(_WORDS["harmless_name"], names))
        is_named = bool(_match(_WORDS["judgement_name"], names)) and "id" not in names
        if len(keys) < 2:
            wrong |= keys & {"0", "-1"} if is_named else set()
            return bool(wrong) and not is_harmless and self.counts.total() > 1
        if self.are_few and right | wrong == keys:
            return bool(wrong) and (bool(right) or is_named or not is_harmless)
        if is_named or is_harmless:
            return is_named and (self.are_few or self.are_numbers)
        is_label = self.are_few and self.counts.total() > len(keys)  # all different, they number the rows
        if not self.are_numbers:
            return is_label and (len(keys) == 2 or bool(wrong and right))
        high = _MAX_GRADE if self.are_whole else _MAX_SCORE
        return (is_label or not self.are_whole) and self.low >= -1 and self.high <= high


def add_condition(text: str, option: str) -> tuple[str, Callable[[Any], bool]]:
    """Column and test of a condition: `label=1`, `label=1|2`, `score>=0.5`.

    Raises:
        UserError: if it is none of these.
    """
    column, sign, wanted = (*(part.strip() for part in re.split("(>?=)", text, maxsplit=1)), "", "")[:3]
    keys, least = {value_key(part) for part in wanted.split("|")}, ColumnValues([wanted])
    if not wanted or (sign == ">=" and not least.are_numbers):
        raise UserError(f"{option} is a column and its value, such as label=1 or score>=0.5, got {text!r}")
    if sign == "=":
        return column, lambda value: value is not None and value_key(value) in keys
    return column, lambda value: ColumnValues([value]).high >= least.low


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
