"""Texts in which some words become others, and where a span comes to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[int, int]


class Edit(NamedTuple):
    """The characters [start, end) of a text became [new_start, new_end) of the rewritten one."""

    start: int
    end: int
    new_start: int
    new_end: int


def rewrite(text: str, pieces: Iterable[tuple[int, int, str]]) -> tuple[str, list[Edit]]:
    """The text with other words in some places, and what became what.

    Args:
        pieces: (start, end, what replaces the characters between them), from left to right.
    """
    parts: list[str] = []
    edits: list[Edit] = []
    read = length = 0
    for start, end, new in pieces:
        new_start = length + start - read
        length, parts = new_start + len(new), [*parts, text[read:start], new]
        edits.append(Edit(start, end, new_start, length))
        read = end
    return "".join([*parts, text[read:]]), edits


def moved(span: Span, edits: Sequence[Edit]) -> Span:
    """The span's place in the rewritten text.

    A span that begins or ends within replaced characters takes in all that replaces them, and one takes in
    what was inserted right behind it.
    """
    first, last = new_first, new_last = span
    for edit in edits:
        if edit.end <= first:
            new_first = first - edit.end + edit.new_end
        elif edit.start < first:
            new_first = edit.new_start
        if edit.end <= last:
            new_last = last - edit.end + edit.new_end
        elif edit.start < last:
            new_last = edit.new_end
    return new_first, new_last
