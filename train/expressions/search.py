"""Expressions in running text: one of them, or any of many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from train.expressions.patterns import IN_A_WORD, expression_pattern, expression_words, lower_case

_MAX_CACHED_TEXTS = 200_000
# U+02BC is a letter, but is used as an apostrophe too.
_RUN = re.compile(rf"(?:(?!\u02bc){IN_A_WORD})+")


def find_expression(text: str, expression: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of an expression, as people write it.

    Case, the kind of apostrophe, and space or hyphen make no difference, and any word may be inflected
    (:func:`~train.expressions.inflections`). Only whole words match, in their order, with nothing between
    them: "in the bag" is not in "in the bagpipe", nor "spill the beans" in "spill all the beans".

    Some words of an expression are placeholders. `someone`, `somebody`, `something`, their genitives, and
    `one's` stand for any phrase of up to five words, without punctuation or the first word of a clause, and
    `oneself` for any reflexive pronoun: "take someone for a ride" is in "she took my older brother for a
    ride". At either end of an expression, where the end of the phrase is unknown, they stand for a pronoun
    only.
    """
    found = expression_pattern(expression).search(text)
    return found.span() if found else None


class ExpressionIndex:
    """Finds any of many expressions in a text, in one pass over its words.

    Args:
        expressions: where several match at one place, the longest match counts, then the first expression.

    Raises:
        ValueError: as :func:`~train.expressions.patterns.expression_words`.
    """

    def __init__(self, expressions: Iterable[str]) -> None:
        # First letters → letters that the further words may begin with, expression, and number of signs
        # before the first letters (one in ".NET"). A pattern takes a millisecond to compile, and a glossary
        # may have 50,000 expressions: so it is compiled where the text holds all the expression's words.
        self._starting: dict[str, list[tuple[tuple[frozenset[str], ...], str, int]]] = {}
        self._expressions = list(dict.fromkeys(expressions))
        for expression in self._expressions:
            first, *others = expression_words(expression)
            further = tuple(
                frozenset(_first_run(form)[0] for form in word.forms)
                for word in others
                if word.stands_for is None and all(map(_RUN.search, word.forms))
            )
            for start, lead in dict.fromkeys(map(_first_run, first.forms)):
                self._starting.setdefault(start, []).append((further, expression, lead))
        # A text comes again: in each epoch, in several benchmarks, read in several ways.
        self._found = lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._find)
        self._found_runs = lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._runs)

    def __reduce__(self) -> tuple[type[ExpressionIndex], tuple[list[str]]]:
        """Pickled, and copied, without the caches, which cannot be pickled."""
        return type(self), (self._expressions,)

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """(start, end, expression) of all occurrences, from left to right, without overlaps."""
        return self._found(text)

    def _find(self, text: str) -> list[tuple[int, int, str]]:
        return [(*match.span(), expression) for match, expression in self._matches(text, 0, len(text))]

    def find_runs(self, text: str) -> Sequence[tuple[list[tuple[int, int]], str]]:
        """(runs, expression) in the same order, with a run (start, end) for each stretch of fixed words.

        What fills a placeholder is not a part of the expression: the runs of "take someone for a ride" are
        "take" and "for a ride", and an expression between them is found too, and listed after it.
        """
        return self._found_runs(text, 0, len(text))

    def _runs(self, text: str, start: int, end: int) -> list[tuple[list[tuple[int, int]], str]]:
        pieces: list[tuple[list[tuple[int, int]], str]] = []
        for match, expression in self._matches(text, start, end):
            runs = [match.span(group) for group in range(1, len(match.groups()) + 1)] or [match.span()]
            pieces.append((runs, expression))
            for (_, before), (after, _) in pairwise(runs):
                pieces += self._runs(text, before, after)
        return pieces

    def inside(self, expression: str) -> list[str]:
        """The other expressions found in one of them as it is listed."""
        matches = self._matches(expression, 0, len(expression), apart=expression)
        return list(dict.fromkeys(other for _, other in matches))

    def _matches(
        self, text: str, start: int, end: int, *, apart: str | None = None
    ) -> Iterator[tuple[re.Match[str], str]]:
        """The longest match at each place that no match before it covers.

        Args:
            apart: an expression that is not looked for.
        """
        after = start
        plain = str.lower if text.isascii() else lower_case
        words = [(plain(word.group()), word.start()) for word in _RUN.finditer(text, start, end)]
        letters = {word for word, _ in words}
        for word, place in words:
            candidates = self._starting.get(word)
            if candidates is None or place < after:
                continue
            matches = (
                (expression_pattern(name).match(text, place - lead, end), name)
                for further, name, lead in candidates
                if place - lead >= after
                and name != apart
                and not any(letters.isdisjoint(forms) for forms in further)
            )
            ends = [(match, name) for match, name in matches if match]
            if ends:
                longest = max(ends, key=lambda found: (found[0].end(), -found[0].start()))
                after = longest[0].end()
                yield longest


def contained(expressions: Iterable[str]) -> dict[str, list[str]]:
    """Expression → the others found in it as it is listed, for those in which any is."""
    index = ExpressionIndex(names := list(expressions))
    return {name: others for name in names if (others := index.inside(name))}


def _first_run(form: str) -> tuple[str, int]:
    """The letters that a form begins with, and their place in it: `devil` for `devil's`, `net` for `.net`."""
    found = _RUN.search(form)
    assert found is not None  # an expression holds a letter or digit
    return lower_case(found.group()), found.start()
