"""Rules that a written text must keep before a judge is asked: they cost nothing."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

from idiomtune.expressions import ExpressionIndex
from idiomtune.requests import find_span
from idiomtune.writing.slots import Draft, Slot

ONE_SPAN = "the span stands in the text once"
WITH_EXPRESSION = "the expression once, as the span"
_LENGTHS = 20, 400  # characters, of which one as wide as two counts twice; IdioLink's texts have 61 to 180
_END = re.compile(r"[.!?…]+[\"'”’»)]*(?=\s|$)|[。！？]+")
_SIMILAR = 0.8  # share of two texts' words that both have (Jaccard), from which they are nearly the same


class Rules:
    """Which rule a text breaks, given the texts that were accepted before.

    Args:
        index: finds all expressions of the data set.
    """

    def __init__(self, index: ExpressionIndex) -> None:
        self._index = index
        self._words: dict[str, list[frozenset[str]]] = defaultdict(list)  # word → accepted texts' words

    def broken_rule(self, slot: Slot, draft: Draft, sources: Sequence[Draft] = ()) -> str | None:
        """The name of the first rule that a text breaks; None: it is accepted, and later ones must differ.

        Args:
            sources: of a simplification: the idiomatic texts, of which it must rewrite one.
        """
        text, matches = draft.text, self._index.find(draft.text)
        if any(name != slot.expression for *_, name in matches):
            return "no other expression"
        if slot.has_expression and len(matches) == 1 and draft.span in text:
            (start, end, _), (first, last) = matches[0], find_span(text, draft.span) or (0, 0)
            if first < end and start < last:  # the span is the expression itself, no more and no less
                draft.span = text[start:end]
            else:
                return WITH_EXPRESSION
        elif slot.has_expression:
            return WITH_EXPRESSION if len(matches) != 1 else ONE_SPAN
        elif matches:
            return "without the expression"
        if not _stands_once(draft):
            return ONE_SPAN
        width = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
        if not _LENGTHS[0] <= width <= _LENGTHS[1]:
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
        num_first = len(words) - math.ceil(_SIMILAR * len(words)) + 1
        first = sorted(words, key=lambda word: (-len(word), word))[:num_first]
        others = {other for word in first for other in self._words[word]}
        if any(len(words & other) >= _SIMILAR * len(words | other) for other in others):
            return True
        for word in first:
            self._words[word].append(words)
        return False


def _stands_once(draft: Draft) -> bool:
    """Whether the span stands in the text once, as whole words where the text has blanks."""
    text, span = draft.text, draft.span
    start, end = text.find(span), text.find(span) + len(span)
    cuts_word = _is_within_word(text, start) or _is_within_word(text, end)
    return bool(span) and text.count(span) == 1 and not (cuts_word and " " in text)


def _is_within_word(text: str, position: int) -> bool:
    return text[max(0, position - 1) : position].isalnum() and text[position : position + 1].isalnum()


def source_of(draft: Draft, sources: Sequence[Draft]) -> Draft | None:
    """The text that a simplification rewrites: the same but for the span and a word on each side of it."""

    def outside(draft: Draft) -> tuple[str, str]:
        before, _, after = draft.text.partition(draft.span)
        before, after = before.rstrip(), after.lstrip()
        return before.rpartition(" ")[0] or before, after.partition(" ")[2] or after

    rest = outside(draft)
    return next((source for source in sources if any(rest) and outside(source) == rest), None)
