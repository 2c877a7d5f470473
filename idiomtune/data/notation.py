"""Expressions as dictionaries print them: `to pull sb's leg (informal)` is read as `pull someone's leg`.

What their words and signs mean is in `notation.tsv`, by language: what stands for a phrase, an owner or a
reflexive pronoun; labels in brackets; the words after which `to` and `be` are parts of an expression.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).with_name("notation.tsv")
_MAX_FORMS = 8  # of an expression with alternatives
_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]|<([^<>]*)>|\{([^{}]*)\}")
_NUMBER = re.compile(r"^\s*(?:\(?\d{1,2}[.)]|[①-⑳])\s+|[\u00b9\u00b2\u00b3\u2070-\u2079]+$|\s+\(\d{1,2}\)$")
_SENSE = re.compile(r"(?:^|[\s;,])(?:\(?\d{1,2}[.)]|[①-⑳])\s+")
_PRONOUN = re.compile(r"\b(?:pron|pronoun|poss|possessive|one's|someone's)\b", re.IGNORECASE)
_GAP = re.compile(r"\s*(?:\.\.\.|…|~)\s*")
_UNREAD = re.compile(r"[\[\](){}<>|~*=]|\.\.\.|…|(?<=\w\w)/(?=\w\w)")


class Printed(NamedTuple):
    """An expression as a dictionary prints it.

    Attributes:
        forms: what is looked for in texts; several where it has alternatives.
        unread: the first sign that is not understood; "" if there is none.
    """

    forms: tuple[str, ...]
    unread: str = ""


class _Notation(NamedTuple):
    placeholders: dict[str, str]  # as printed, in lower case → as we write it
    foreign: frozenset[str]  # those that English pronouns cannot fill
    labels: frozenset[str]
    follows: dict[str, frozenset[str]]  # `to`, `be` → words before which they belong, or do not, to it


@cache
def _notation() -> _Notation:
    rows = [line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    placeholders: dict[str, str] = {}
    foreign, labels = set[str](), set[str]()
    follows: dict[str, frozenset[str]] = {}
    for language, kind, printed, *read in rows:
        words = printed.split()
        if kind == "label":
            labels.update(words)
        elif kind in ("citation", "copula"):
            follows[printed] = frozenset(read[0].split())
        else:
            placeholders |= dict.fromkeys(words, read[0])
            foreign.update(words if language != "en" else ())
    return _Notation(placeholders, frozenset(foreign), frozenset(labels), follows)


def read_printed(expression: str) -> Printed:
    """The forms of a printed expression, in the notation of :mod:`idiomtune.expressions`.

    >>> read_printed("to take sth with a pinch/grain of salt (informal)").forms
    ('take something with a pinch of salt', 'take something with a grain of salt')
    """
    bare = _NUMBER.sub("", " ".join(expression.split()))
    forms: dict[str, None] = {}
    for whole in re.split(r"\s+[/|]\s+", bare):
        for choice in product((False, True), repeat=len(_optional(whole))):
            unbracketed = _without_brackets(whole, choice)
            for form in _alternatives(_without_brackets(unbracketed, ())):
                forms[_plain_form(form)] = None
    readable = tuple(form for form in forms if any(map(str.isalnum, form)))[:_MAX_FORMS] or (bare,)
    sign = next((match for form in readable if (match := _UNREAD.search(form))), None)
    return Printed(readable, sign.group() if sign else "")


def split_senses(meaning: str) -> list[str]:
    """The numbered senses of a meaning, without their numbers.

    >>> split_senses("1. to die 2. to stop working")
    ['to die', 'to stop working']
    """
    first = _SENSE.match(meaning)
    senses = [part.strip(" ;,") for part in _SENSE.split(meaning)] if first else [meaning]
    return [sense for sense in senses if any(map(str.isalnum, sense))] or [meaning]


def _is_label(inside: str) -> bool:
    words = [word for word in re.split(r"[\s,;/]+", inside.lower()) if word]
    return all(word in _notation().labels or word.rstrip(".") in _notation().labels for word in words)


def _optional(text: str) -> list[str]:
    """The optional words in brackets."""
    return [inside for match in _BRACKETS.finditer(text) if (inside := _meant(match)) and inside != "be"][:3]


def _meant(match: re.Match[str]) -> str:
    """The words of a bracket that belong to the expression; "" for a label."""
    inside = next(filter(None, match.groups()), "").strip()
    return "" if _is_label(inside) or _PRONOUN.search(inside) or _is_placeholder(inside) else inside


def _is_placeholder(inside: str) -> bool:
    return inside.lower() in _notation().placeholders


def _without_brackets(text: str, choice: tuple[bool, ...]) -> str:
    """The text with those of the optional words that are kept, and without labels."""
    choices = iter(choice)

    def written(match: re.Match[str]) -> str:
        inside = next(filter(None, match.groups()), "").strip()
        if _is_placeholder(inside):
            return f" {inside}" if not text[match.end() :].startswith(("'", "’")) else inside
        if _PRONOUN.search(inside):
            return " one's "
        if not _meant(match) or inside == "be":
            return " "
        joins = "" if text[match.start() - 1 : match.start()].isalnum() else " "
        return f"{joins}{inside}{joins}" if next(choices, False) else joins

    return re.sub(r"\s+(?=[,;])", "", " ".join(_BRACKETS.sub(written, text).split()))


def _alternatives(text: str) -> list[str]:
    """Each choice of words that are divided by a slash."""
    words = text.split()

    def choices(word: str) -> list[str]:
        parts = word.split("/")
        are_words = len(words) > 1 and all(len(part) > 1 and part.isalpha() for part in parts)  # not 24/7
        return parts if are_words and word.lower() not in _notation().placeholders else [word]

    return [" ".join(choice) for choice in islice(product(*map(choices, words)), _MAX_FORMS)]


def _plain_form(text: str) -> str:
    """The form without `to`, `be` and foreign placeholders at its ends, placeholders as we write them."""
    notation = _notation()
    words = _GAP.sub(" … ", text).split()
    for first in ("to", "be"):
        if len(words) > 2 and words[0].lower() == first:
            follows = [word.lower() in notation.follows[first] for word in words[1:]]
            is_apart = follows[0] and not all(follows) if first == "be" else not follows[0]
            words = words[1:] if is_apart else words
    ends = notation.foreign | {"…"}
    while len(words) > 1 and words[0].lower() in ends:
        words = words[1:]
    while len(words) > 1 and words[-1].lower() in ends:
        words = words[:-1]
    return " ".join(notation.placeholders.get(word.lower(), word) for word in words)
