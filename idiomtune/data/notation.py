"""Texts as files have them: markup, and the notation of dictionaries.

:func:`clean_text` removes HTML and signs that nobody sees. `to pull sb's leg (informal)` is read as
`pull someone's leg`. What words and signs mean is in `notation.tsv`, by language: what stands for a phrase,
an owner or a reflexive pronoun; labels in brackets; what begins an example; the words after which `to` and
`be` are parts of an expression.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from html import unescape
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

_TABLE = Path(__file__).with_name("notation.tsv")
_MAX_FORMS = 8  # of an expression with alternatives
_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]|<([^<>]*)>|\{([^{}]*)\}")
_NUMBER = re.compile(r"^\s*(?:\(?\d{1,2}[.)]|[①-⑳])\s+|[\u00b9\u00b2\u00b3\u2070-\u2079]+$|\s+\(\d{1,2}\)$")
_SENSE = re.compile(r"(?:^|[\s;,])(?:\(?\d{1,2}[.)]|[①-⑳])\s+")
_NUMBERED_LINE = re.compile(r"\n(?:\(?\d{1,2}[.)]|[①-⑳])\s+")
_ALTERNATIVES = re.compile(r"\s+/\s+|\s*[|;\n]\s*")
_PRONOUN = re.compile(r"\b(?:pron|pronoun|poss|possessive|one's|someone's)\b", re.IGNORECASE)
_GAP = re.compile(r"\s*(?:\.\.\.|…|~)\s*")
_UNREAD = re.compile(r"[\[\](){}<>|~*=]|\.\.\.|…|(?<=\w\w)/(?=\w\w)|\b(\w{3,}), .*\b\1$")


# ---------------------------------------------------------------- markup

_SIGNS = re.compile(r"[<&\\\[{\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# Between letters of scripts after Latin, U+200C and U+200D are spelling: Persian, Indic scripts, emoji.
_INVISIBLE = re.compile(
    r"[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
    r"|(?<![^\0-\u024f])[\u200c\u200d]|[\u200c\u200d](?![^\0-\u024f])"
)
_ENTITY = re.compile(r"&(?:#\d+|#x[\da-f]+|[a-z]+\d*);", re.IGNORECASE)
_ESCAPE = re.compile(r"\\[nrt]")
# A path, or a formula: there a backslash begins no escape.
_OTHER_ESCAPE = re.compile(
    r"""\\(?![nrt"'\\/])|\b[A-Za-z]:\\|\\(?:n(?:u|eq?|abla|ot)|t(?:heta|imes|ext\w*|au|o)|r(?:ho|m))\b"""
)
# Tags whose names HTML has: those that divide lines, and others.
_BREAKS = """audio blockquote body br center dd div dl dt figure h1 h2 h3 h4 h5 h6 hr html img li ol p pre
    section table tbody td tfoot th thead tr ul video"""
_INLINE = """a abbr acronym b bdi bdo big cite code del em font i iframe ins kbd link meta q ruby s samp small
    span strike strong sub sup tt u var wbr"""
_ATTRIBUTES = r"""(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))*"""
_TAG = re.compile(rf"</?({'|'.join([*_BREAKS.split(), *_INLINE.split()])}){_ATTRIBUTES}\s*/?>", re.IGNORECASE)
_REMOVED = [  # what stands for each
    (re.compile(r"<!--.*?-->|<(script|style|rt|rp)\b[^<>]*>.*?</\1>", re.DOTALL | re.IGNORECASE), ""),
    (re.compile(r"\[(?:sound|anki:\w+):[^\]]*\]"), ""),
    (re.compile(r"\{\{c\d+::(.*?)(?:::[^{}]*)?\}\}"), r"\1"),  # Anki's gaps
    (re.compile(r"(?<!\w)\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]"), r"\1"),  # links of a wiki
    (
        re.compile(r"\[(b|i|u|s|c|m|p|ex|com|trn|sub|sup|url|color)\d?(?:[= ][^\]]*)?\](.*?)\[/\1\]"),
        r"\2",
    ),
]


def clean_text(text: str) -> str:
    """A text without markup and invisible signs; one that has none is unchanged.

    Removed are tags whose names HTML has, entities (`&nbsp;`), references to sounds, gaps of Anki, links of
    wikis, BBCode, soft hyphens and blanks without width. Tags such as `<br>`, and a backslash with n or t,
    become line breaks or blanks.

    >>> clean_text("<div>tell a&nbsp;secret</div>[sound:a.mp3]")
    'tell a secret'
    >>> clean_text("x < y, and I <3 you & me")
    'x < y, and I <3 you & me'
    """
    bare = text
    while _SIGNS.search(bare):
        before = bare
        bare = _ENTITY.sub(lambda match: unescape(match[0]).replace("\xa0", " "), bare)
        bare = _TAG.sub(lambda match: "\n" if match[1].lower() in _BREAKS.split() else "", bare)
        for pattern, new in _REMOVED:
            bare = pattern.sub(new, bare)
        if not _OTHER_ESCAPE.search(bare):
            bare = _ESCAPE.sub(lambda match: "\n" if match[0] == r"\n" else " ", bare)
        bare = _INVISIBLE.sub("", bare)
        if bare == before:
            break
    return text if bare == text else re.sub(r"[^\S\n]*\n\s*", "\n", bare).strip()


class TextCleaner:
    """:func:`clean_text` for the texts of a file: it counts the rows in which it changes some."""

    def __init__(self) -> None:
        self._rows: dict[int, None] = {}

    def clean(self, text: str, row: int) -> str:
        """The text without markup."""
        if (bare := clean_text(text)) != text and bare != _INVISIBLE.sub("", text).strip():
            self._rows[row] = None
        return bare

    def log(self, name: str) -> None:
        """Say in how many rows of the file `name` texts had markup, if in any."""
        if self._rows:
            message = "%s: markup removed from the texts of %d rows, the first row %d"
            log.warning(message, name, len(self._rows), next(iter(self._rows)))


# ---------------------------------------------------------------- notation


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
    examples: frozenset[str]  # what a line with an example begins with
    follows: dict[str, frozenset[str]]  # `to`, `be` → words before which they belong, or do not, to it


@cache
def _notation() -> _Notation:
    rows = [line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    placeholders: dict[str, str] = {}
    foreign, labels, examples = set[str](), set[str](), set[str]()
    follows: dict[str, frozenset[str]] = {}
    for language, kind, printed, *read in rows:
        words = printed.split()
        if kind == "label":
            labels.update(words)
        elif kind == "example":
            examples.update(words)
        elif kind in ("citation", "copula"):
            follows[printed] = frozenset(read[0].split())
        else:
            placeholders |= dict.fromkeys(words, read[0])
            foreign.update(words if language != "en" else ())
    return _Notation(placeholders, frozenset(foreign), frozenset(labels), frozenset(examples), follows)


def read_printed(expression: str) -> Printed:
    """The forms of a printed expression, in the notation of :mod:`idiomtune.expressions`.

    >>> read_printed("to take sth with a pinch/grain of salt (informal)").forms
    ('take something with a pinch of salt', 'take something with a grain of salt')
    """
    forms: dict[str, None] = {}
    for whole in (_NUMBER.sub("", whole) for whole in split_forms(expression)):
        for choice in product((False, True), repeat=len(_optional(whole))):
            unbracketed = _without_brackets(whole, choice)
            for form in _alternatives(_without_brackets(unbracketed, ())):
                forms[_plain_form(form)] = None
    readable = tuple(form for form in forms if any(map(str.isalnum, form)))[:_MAX_FORMS]
    readable = readable or (" ".join(expression.split()),)
    sign = next((match for form in readable if (match := _UNREAD.search(form))), None)
    return Printed(readable, sign.group() if sign else "")


def split_forms(cell: str) -> list[str]:
    """The forms in a cell, divided by `|`, `;`, a line break, or a slash between blanks.

    >>> split_forms("gave up|gives up; has given up")
    ['gave up', 'gives up', 'has given up']
    """
    forms = (" ".join(form.split()) for form in _ALTERNATIVES.split(clean_text(cell)))
    return [form for form in forms if any(map(str.isalnum, form))]


def split_senses(meaning: str) -> list[str]:
    """The numbered senses of a meaning, without their numbers, without labels before them and examples.

    >>> split_senses("1. to die 2. to stop working")
    ['to die', 'to stop working']
    >>> split_senses("(idiom)\nto make people relax\n2. to begin\nExample: they began")
    ['to make people relax', 'to begin']
    """
    lines = [line for line in map(str.strip, meaning.splitlines()) if not _is_example(line)]
    whole = _without_label("\n".join(lines))
    parts = (_SENSE if _SENSE.match(whole) else _NUMBERED_LINE).split(whole)
    senses = [_without_label(" ".join(part.split()).strip(" ;,")) for part in parts]
    return [sense for sense in senses if any(map(str.isalnum, sense))] or [" ".join(meaning.split())]


def _is_example(line: str) -> bool:
    word, sign, _ = line.partition(":")
    return bool(sign) and word.lower() in _notation().examples


def _without_label(sense: str) -> str:
    """A sense without labels in brackets at its beginning."""
    while (match := _BRACKETS.match(sense)) and _is_label(next(filter(None, match.groups()), "")):
        sense = sense[match.end() :].lstrip(" \n:,")
    return sense


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
