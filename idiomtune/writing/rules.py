"""Rules that a written text must keep before a judge is asked: they cost nothing."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

from idiomtune.expressions import ExpressionIndex, word_list
from idiomtune.requests import find_span
from idiomtune.writing.slots import Draft, Slot

ONE_SPAN = "the span stands in the text once"
WITH_EXPRESSION = "the expression once, as the span"
_LENGTHS = 20, 400  # characters, of which one as wide as two counts twice; IdioLink's texts have 61 to 180
_END = re.compile(r"[.!?…]+[\"'”’»)]*(?=\s|$)|[。！？]+")
_ARTICLES = {code: words.split("/") for code, words in (line.split("=") for line in word_list("articles"))}
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # nor in a spreadsheet
_LIST_SIGN = re.compile(r"(?:\(?\d{1,3}[.):]|[-–—•‣▪●◦·>#]+)\s+")  # as in `1. `
_MARKS = re.compile(r"\*+|`+|[\[\]]+|</?\w+/?>|(?<!\w)_+|_+(?!\w)")
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "«": "»", "»": "«", "‘": "’", "「": "」"}
_JOINERS = "\u200c\u200d"  # of letters in some scripts
_CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], " ")
_SIMILAR = 0.8  # share of two texts' words that both have (Jaccard), from which they are nearly the same


class Rules:
    """Which rule a text breaks, given the texts that were accepted before.

    Args:
        index: finds all expressions of the data set.
        language: of the texts, a code.
    """

    def __init__(self, index: ExpressionIndex, language: str = "en") -> None:
        self._index, self._articles = index, _ARTICLES.get(language, [])
        self._words: dict[str, list[frozenset[str]]] = defaultdict(list)  # word → accepted texts' words

    def broken_rule(self, slot: Slot, draft: Draft, sources: Sequence[Draft] = ()) -> str | None:
        """The name of the first rule that a text breaks; None: it is accepted, and later ones must differ.

        Args:
            sources: of a simplification: the idiomatic texts, of which it must rewrite one.
        """
        text, matches = draft.text, self._index.find(draft.text)
        if NOT_IN_XML.search(text):
            return "characters that a spreadsheet takes"
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
            return None if self.source_of(draft, sources) else "only the span differs"
        return "no near duplicate" if self._is_near_duplicate(text) else None

    def source_of(self, draft: Draft, sources: Sequence[Draft]) -> Draft | None:
        """The text that a simplification rewrites: the same outside the span.

        Beside the span an article may come, go or change, and one word may change, since its ending may.
        """
        parts = self._outside(draft)
        return next((source for source in sources if _is_rewritten(parts, self._outside(source))), None)

    def _outside(self, draft: Draft) -> list[list[str]]:
        """The words before the span, those after it backwards; then both without an article at the span."""
        before, _, after = draft.text.partition(draft.span)
        sides = [before.split(), after.split()[::-1]]
        return sides + [
            side[:-1] if side and side[-1].casefold() in self._articles else side for side in sides
        ]

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


def _is_rewritten(new: Sequence[list[str]], old: Sequence[list[str]]) -> bool:
    before, after, *_ = is_same = [
        words == others or (len(words) == len(others) > 1 and words[:-1] == others[:-1])
        for words, others in zip(new, old, strict=True)
    ]
    return any(old) and (before or is_same[2]) and (after or is_same[3])


def clean(text: str) -> str:
    """A text on one line, without the marks that models put into texts and around them.

    These are HTML, emphasis and brackets, the sign of a list before a text, quotation marks around it, and
    characters that are not seen.
    """
    text = html.unescape(text.replace("\\n", " "))
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cs", "Cf") or c in _JOINERS)
    text = " ".join(_MARKS.sub("", text.translate(_CONTROLS)).split())
    text = _LIST_SIGN.sub("", text, count=1) if _LIST_SIGN.match(text) else text
    inner = text[1:-1]
    is_quoted = (
        len(text) > 2 and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner and text[-1] not in inner
    )
    return inner.strip() if is_quoted else text
