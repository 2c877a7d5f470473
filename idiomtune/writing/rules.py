"""Rules that a written text must keep before a judge is asked: they cost nothing."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

from idiomtune.expressions import ExpressionIndex
from idiomtune.requests import find_span
from idiomtune.writing.slots import Draft, Slot

_LENGTHS = 20, 400  # characters; IdioLink's texts have 61 to 180
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_END = re.compile(r"[.!?…。！？]+[\"'”’»)]*(?=\s|$)")
_SIMILAR = (
    0.8  # share of the words of two texts that both have (Jaccard), from which they are nearly the same
)


class Rules:
    """Which rule a text breaks, given the texts that were accepted before.

    Args:
        index: finds all expressions of the data set.
    """

    def __init__(self, index: ExpressionIndex) -> None:
        self._index = index
        self._words: dict[str, list[frozenset[str]]] = defaultdict(
            list
        )  # word → accepted texts that begin so

    def broken_rule(self, slot: Slot, draft: Draft, sources: Sequence[Draft] = ()) -> str | None:
        """The name of the first rule that a text breaks; None: it is accepted, and later ones must differ.

        Args:
            sources: of a simplification: the idiomatic texts, of which it must rewrite one.
        """
        text, span = draft.text, draft.span
        if _CONTROL.search(text):
            return "one line of text"
        if not span.strip() or text.count(span) != 1:
            return "the span stands in the text once"
        matches = self._index.find(text)
        if any(name != slot.expression for *_, name in matches):
            return "no other expression"
        start, end = find_span(text, span) or (0, 0)
        if slot.has_expression and (len(matches) != 1 or matches[0][0] >= end or matches[0][1] <= start):
            return "the expression once, as the span"
        if not slot.has_expression and matches:
            return "without the expression"
        if not _LENGTHS[0] <= len(text) <= _LENGTHS[1]:
            return f"{_LENGTHS[0]} to {_LENGTHS[1]} characters"
        if len(_END.findall(text)) > 2:
            return "one or two sentences"
        if slot.usage == "simplification":
            return None if source_of(draft, sources) else "only the span differs"
        return "no near duplicate" if self._is_near_duplicate(text) else None

    def _is_near_duplicate(self, text: str) -> bool:
        """Whether an accepted text has nearly the same words; otherwise the text is one from now on.

        Two such texts share a word among the first fifth of each, sorted: only these are compared.
        """
        words = frozenset(re.findall(r"\w+", text.casefold())) or frozenset([text])
        first = sorted(words, key=lambda word: (-len(word), word))[
            : len(words) - math.ceil(_SIMILAR * len(words)) + 1
        ]
        others = {other for word in first for other in self._words[word]}
        if any(len(words & other) >= _SIMILAR * len(words | other) for other in others):
            return True
        for word in first:
            self._words[word].append(words)
        return False


def source_of(draft: Draft, sources: Sequence[Draft]) -> Draft | None:
    """The text that a simplification rewrites: all but the span and a word on each side of it is the same."""

    def outside(draft: Draft) -> tuple[list[str], list[str]]:
        before, _, after = draft.text.partition(draft.span)
        return before.split()[:-1], after.split()[1:]

    return next((source for source in sources if outside(source) == outside(draft)), None)
