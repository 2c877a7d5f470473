"""The driver of tests that make up what they put in, and values that have broken programs before.

By default a little is tried, and the same each time. With `FUZZ_EXAMPLES=5000` in the environment, a test
file that imports this draws so many, anew each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
_EXAMPLES = os.environ.get("FUZZ_EXAMPLES")

FUZZED = settings(
    max_examples=int(_EXAMPLES or 15),
    derandomize=_EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# What a terminal would obey: controls and bidirectional overrides.
TERMINAL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\u200f"
NASTY_TEXTS = [
    *("", " ", "\t", "\u00a0", "\u2028", "\x00", "\ufeff", "NaN", "None", "null", "inf", "-1", "1e999"),
    *("1_0", "[", "]", "{[]}", "[[[[", "['a'", "[True]", "[" * 500, "-" * 5000 + "1", "'", '"', '""', "\\"),
    *("%s", "\\n", "{query}", "{0}", "---", "ﬀ", "İ", "e\u0301", "\u202e", "🜚", "../..", "/", "~nobody-here"),
    "a" * 5000,
]
TEXTS = st.one_of(st.sampled_from(NASTY_TEXTS), st.text(max_size=12))
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 10**30, -(10**30), 0.0, -0.5, 1.5, 1e308, 1e-308),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "nonsense", [], [[]], [None], [""], {}, {"a": 1}),
]
ODD = st.one_of(TEXTS, st.just(TERMINAL), st.sampled_from(VALUES))
_SIGNS = [b'"', b",", b"\n", b"\r", b"\t", b":", b"[", b"{", b"}", b"\x00", b"\xff", b"[" * 3000]


def fuzz(values: SearchStrategy[T], check: Callable[[T], object]) -> None:
    """Check as many of the values as are asked for."""

    @FUZZED
    @given(values)
    def tried(value: T) -> None:
        check(value)

    tried()


def damaged_bytes(good: bytes) -> SearchStrategy[bytes]:
    """A file's content with up to three stretches replaced."""
    put = st.one_of(st.binary(max_size=4), st.sampled_from(_SIGNS))
    change = st.tuples(st.integers(0, len(good)), st.integers(0, 40), put)

    def damaged(changes: list[tuple[int, int, bytes]]) -> bytes:
        content = good
        for start, length, new in changes:
            content = content[:start] + new + content[start + length :]
        return content

    return st.lists(change, min_size=1, max_size=3).map(damaged)


def damaged_rows(
    rows: Sequence[Sequence[Any]], values: SearchStrategy[Any]
) -> SearchStrategy[list[list[Any]]]:
    """A table, its header first, with up to three cells or names replaced, and some rows twice."""
    place = st.tuples(st.integers(0, min(len(rows) - 1, 9)), st.integers(0, len(rows[0]) - 1))

    def damaged(drawn: tuple[list[tuple[tuple[int, int], Any]], list[int]]) -> list[list[Any]]:
        changes, doubled = drawn
        table = [list(row) for row in rows]
        for (row, column), value in changes:
            table[row][column] = value if row else str(value)
        return [*table, *(table[row] for row in doubled)]

    changes = st.lists(st.tuples(place, values), max_size=3)
    return st.tuples(changes, st.lists(st.integers(1, len(rows) - 1), max_size=2)).map(damaged)
