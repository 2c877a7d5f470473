"""Text from data files: its lines, and a form that is safe to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# C0 and C1 controls, formats (bidirectional overrides, zero-width characters), lone surrogates, characters of
# private use, the separators of lines and paragraphs.
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_HARMLESS = "\n\t\u200c\u200d"  # the latter join parts of words in some scripts, and of emoji


def text_lines(text: str) -> list[str]:
    r"""The lines of a text, which end at `\n` and nowhere else.

    `str.splitlines` also cuts at U+2028, U+0085 and others, which may be in any sentence.
    """
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def first_of(names: Sequence[str], num_shown: int = 10) -> str:
    """The first names of a list and, if there are more, how many there are."""
    return ", ".join(names[:num_shown]) + (f", … ({len(names)} in all)" if len(names) > num_shown else "")


def printable(text: str) -> str:
    r"""Text for a terminal, with control characters and those that reorder a line escaped.

    Line ends and tabs stay, since messages have several lines; use `repr` or :func:`one_line` for values
    within a message. An ESC becomes `\x1b`, a right-to-left override `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape", "surrogatepass").decode("ascii")
        if unicodedata.category(c) in _UNSAFE and c not in _HARMLESS
        else c
        for c in text
    )


def one_line(text: str) -> str:
    """As :func:`printable`, with line ends and tabs escaped too, for values within a message."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def has_lone_surrogate(text: str) -> bool:
    r"""Whether it contains an unpaired surrogate (JSON's `"\ud800"`): it cannot be written or tokenized."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
