"""Text from data files: its lines, and a form that is safe to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# C0 and C1 controls, formats (bidirectional overrides, zero-width characters), lone surrogates, characters of
# private use, the separators of lines and paragraphs.
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_KEPT = "\n\t"
_JOINERS = "\u200c\u200d"  # parts of words in some scripts, and of emoji; harmless


def text_lines(text: str) -> list[str]:
    r"""The lines of a text, which end at `\n` and nowhere else.

    `str.splitlines` also cuts at U+2028, U+0085 and others, which may stand in any sentence.
    """
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def first_of(names: Sequence[str], num_shown: int = 10) -> str:
    """The first names of a list and, if there are more, how many there are."""
    shown = ", ".join(names[:num_shown])
    return shown + (f", … ({len(names)} in all)" if len(names) > num_shown else "")


def printable(text: str) -> str:
    r"""Text for a terminal, with control characters and those that reorder a line escaped.

    Line ends and tabs stay, since messages have several lines; use `repr` or :func:`one_line` for values
    within a message. An ESC becomes `\x1b`, a right-to-left override `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if _is_unsafe(c) else c for c in text)


def one_line(text: str) -> str:
    """As :func:`printable`, with line ends and tabs escaped too, for values within a message."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def has_lone_surrogate(text: str) -> bool:
    r"""Whether it holds half a character (JSON's `"\ud800"`), which can be neither written nor tokenized."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_unsafe(character: str) -> bool:
    if character in _KEPT or character in _JOINERS:
        return False
    return unicodedata.category(character) in _UNSAFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
