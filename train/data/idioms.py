"""Where an expression stands in a sentence: capitalised, hyphenated, inflected."""

from __future__ import annotations

import re
from functools import lru_cache

_GAP = r"[\s\-\u2010\u2011\u2013]+"
_APOSTROPHES = "['\u2019\u2018\u02bc]"
_MAX_ENDING = 3  # letters that an inflected word may have more: bucket-s, kick-ed, kick-ing


def find_expression(text: str, expression: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of an expression, as people write it.

    Case, hyphens against spaces and the kind of apostrophe make no difference, and each word may be
    inflected: up to three letters more than the expression's.
    """
    found = expression_pattern(expression).search(text)
    return found.span() if found else None


@lru_cache(maxsize=100_000)
def expression_pattern(expression: str) -> re.Pattern[str]:
    """What :func:`find_expression` looks for."""
    words = [word for word in re.split(r"[\s\-\u2010\u2011\u2013]+", expression.strip()) if word]
    parts = []
    for word in words:
        letters = "".join(_APOSTROPHES if c in "'\u2019\u2018\u02bc" else re.escape(c) for c in word)
        parts.append(rf"{letters}\w{{0,{_MAX_ENDING}}}")
    return re.compile(rf"(?<!\w){_GAP.join(parts)}(?!\w)", re.IGNORECASE)
