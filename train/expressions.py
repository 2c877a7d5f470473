"""Where expressions stand in a sentence: capitalised, hyphenated, inflected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

_HYPHENS = r"\-\u2010\u2011\u2013"  # in a character class
_APOSTROPHES = "'\u2019\u2018\u02bc"
_IN_A_WORD = r"[\w\u0300-\u036f]"  # accents may be characters of their own
# Spaces, or one hyphen. A dash between spaces divides a sentence, not an expression.
_GAP = rf"(?:\s+|[{_HYPHENS}])"

# Words of a dictionary's entry that stand for others in running text.
_PHRASES, _OWNERS = ("someone", "somebody", "something"), ("someone's", "somebody's", "one's")
_REFLEXIVES = [
    "myself",
    "yourself",
    "himself",
    "herself",
    "itself",
    "oneself",
    "ourselves",
    "yourselves",
    "themselves",
]
_PRONOUNS = [
    "me",
    "you",
    "him",
    "her",
    "it",
    "us",
    "them",
    "this",
    "that",
    "these",
    "those",
    "everyone",
    "everybody",
    "anyone",
    "anybody",
]
_POSSESSIVES = ["my", "your", "his", "her", "its", "our", "their", "whose"]
# A clause begins with these; no phrase holds them.
_CLAUSE = [
    "although",
    "because",
    "but",
    "if",
    "though",
    "unless",
    "until",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
]
_MAX_FILLERS = 5  # words of a phrase
# Letters and spaces of a phrase are spelled out, not left to \w and \s, of which each library of regular
# expressions has an idea of its own.
# Not regardless of case, of which both are there: Oniguruma would take "ss" for the one letter ß too, and try
# each way to read it. No word is longer than 40 letters, or a text of letters alone would take for ever.
_LETTERS = (
    r"(?-i:[0-9A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
    r"\u0300-\u036f\u0370-\u052f\u1e00-\u1eff]{1,40})"
)
_SPACES = r"[ \t\n\r\u00a0]{1,40}"
_FILLER = rf"[$#@]?{_LETTERS}(?:[{_HYPHENS}{_APOSTROPHES}&]{_LETTERS}){{0,4}}[{_APOSTROPHES}]?"
_GENITIVE = rf"{_LETTERS}(?:[{_HYPHENS}]{_LETTERS}){{0,4}}(?:[{_APOSTROPHES}]s|(?<=s)[{_APOSTROPHES}])"
KEEP = r"\K"  # of a match in Oniguruma, what stands before it stays

# Determiners and prepositions have one form. The word after one is a noun or an adjective: in "in the can"
# it is never "canning", in "to boot" never "booted".
_BEFORE_NOUNS = """
a an the to of in on at by for from with off out up down over under round into onto through
my your his her its our their one's someone's somebody's
o os as um uma de do da dos das em no na nos nas por para com ao à sem
"""
# Other small words that have one form.
_SMALL = """
and or but not if so than that this who what it he she we they you me him us them is are was were
someone somebody something e ou que se não mais
"""
# As dictionaries list them: the base form, then those that no rule below gives.
_IRREGULAR_VERBS = """
be is are am was were been being, bear bore borne, beat beaten, become became, begin began begun, bend bent,
bind bound, bite bit bitten, bleed bled, blow blew blown, break broke broken, bring brought, build built,
burn burnt, buy bought, catch caught, choose chose chosen, come came, deal dealt, dig dug, do did done does,
draw drew drawn, dream dreamt, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed
fed, feel felt, fight fought, find found, flee fled, fly flew flown, forget forgot forgotten, forgive
forgave forgiven, freeze froze frozen, get got gotten, give gave given, go went gone goes, grind ground,
grow grew grown, hang hung, have had has, hear heard, hide hid hidden, hold held, keep kept, kneel knelt,
know knew known, lay laid, lead led, leap leapt, learn learnt, leave left, lend lent, lie lay lain, light
lit, lose lost, make made, mean meant, meet met, pay paid, ride rode ridden, ring rang rung, rise rose
risen, run ran, say said, see saw seen, sell sold, send sent, shake shook shaken, shine shone, shoot shot,
show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid, smell
smelt, speak spoke spoken, spell spelt, spend spent, spill spilt, spin spun, spring sprang sprung, stand
stood, steal stole stolen, stick stuck, sting stung, strike struck stricken, swear swore sworn, sweep swept,
swim swam swum, swing swung, take took taken, teach taught, tear tore torn, tell told, think thought, throw
threw thrown, tread trod trodden, understand understood, wake woke woken, wear wore worn, weave wove woven,
weep wept, win won, wind wound, wring wrung, write wrote written
"""
_IRREGULAR_NOUNS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "louse": "lice",
    "ox": "oxen",
    "person": "people",
}
_NOUN_FOLLOWS = frozenset(_BEFORE_NOUNS.split())
_ONE_FORM = _NOUN_FOLLOWS | frozenset(_SMALL.split())
_VERB_FORMS = {base: forms for base, *forms in map(str.split, _IRREGULAR_VERBS.split(","))}


def find_expression(text: str, expression: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of an expression, as people write it.

    Case, the kind of apostrophe, and a space against a hyphen make no difference, and any word may be
    inflected (:func:`inflections`). It is found as whole words only, in its order, with nothing between
    them: "in the bag" is not in "in the bagpipe", nor "spill the beans" in "spill all the beans".

    In an expression of several words `someone`, `somebody`, `something`, and with 's or as `one's`, stand for
    any phrase of up to five words, without punctuation or the first word of a clause, and `oneself` for any
    reflexive pronoun: "take someone for a ride" is in "she took my older brother for a ride". At either end
    of an expression, where nothing says how far the phrase goes, they stand for a pronoun alone.
    """
    found = expression_pattern(expression).search(text)
    return found.span() if found else None


def plain_expression(expression: str) -> str:
    """One spelling of an expression, to look it up by: case, hyphens and apostrophes make no difference."""
    words = re.sub(f"[{_APOSTROPHES}]", "'", _plain(expression))
    return " ".join(re.sub(f"[{_HYPHENS}]", " ", words).split())


@lru_cache(maxsize=100_000)
def expression_pattern(expression: str) -> re.Pattern[str]:
    """What :func:`find_expression` looks for, a group for each run of the expression's own words.

    Raises:
        ValueError: if the expression holds no letter or digit.
    """
    parts = _parts(_words(expression))
    if len(parts) == 1:
        return re.compile(_bounded(parts[0]), re.IGNORECASE)
    runs, gaps = parts[::2], parts[1::2]
    pattern = f"({runs[0]})" + "".join(f"{gap}({run})" for gap, run in zip(gaps, runs[1:], strict=True))
    return re.compile(_bounded(pattern), re.IGNORECASE)


class Replacement(NamedTuple):
    """A step by which a regular expression makes an expression in a text a token.

    Attributes:
        pattern: what is replaced.
        by_token: by the token; else by nothing.
    """

    pattern: str
    by_token: bool


def replacements(expression: str, token: str, normalize: Callable[[str], str]) -> list[Replacement]:
    """The steps for texts that a tokenizer has normalised: in lower case, say, and without accents.

    They need no flags, and tokenizers (Oniguruma) read them as Python does, but for `\\K`, which Python does
    not know: what stands before it is looked for and stays. Of an expression with a placeholder the first run
    of words becomes the token, and the others, last to first, are taken out.

    Args:
        token: as it stands in a text that was normalised.
    """
    words = [
        word._replace(forms=list(dict.fromkeys(map(normalize, word.forms)))) for word in _words(expression)
    ]
    parts = _parts(words)
    if len(parts) == 1:
        return [Replacement(_bounded(parts[0]), by_token=True)]
    steps = [Replacement(_bounded(f"{parts[0]}(?={''.join(parts[1:])}{_END})"), by_token=True)]
    for last in range(len(parts) - 1, 0, -2):
        # What is taken out goes with the space before it.
        kept = re.escape(token) + "".join(parts[1:last]).removesuffix(_GAP)
        steps.append(Replacement(_bounded(f"{kept}{KEEP}{_GAP}{parts[last]}"), by_token=False))
    return steps


_START, _END = rf"(?<!{_IN_A_WORD})", rf"(?!{_IN_A_WORD})"


def _bounded(pattern: str) -> str:
    """As whole words."""
    return f"{_START}{pattern}{_END}"


def _any_of(forms: Sequence[str]) -> str:
    return "(?:" + "|".join(map(_spelling, forms)) + ")"


def _parts(words: Sequence[_Word]) -> list[str]:
    """Patterns of an expression's runs of words, and between them of what stands for its placeholders."""
    parts = [""]
    for place, word in enumerate(words):
        if word.stands_for is not None:
            if words[place - 1].stands_for is None:  # the first of several: one gap for all
                count = next(n for n, later in enumerate(words[place:]) if later.stands_for is None)
                parts += [_gap(words[place : place + count], parts[0]), ""]
        else:
            parts[-1] += (_GAP if parts[-1] else "") + _any_of(word.forms)
    return parts


def _gap(placeholders: Sequence[_Word], first: str) -> str:
    """What stands in the place of placeholders side by side, and the spaces around it.

    The shortest match counts, and it does not hold what the expression begins with: in "they take what they
    take him for" the second "take" counts.

    Args:
        first: the pattern of the expression's words before its first placeholder.
    """
    count = len(placeholders)
    kind = placeholders[-1].stands_for
    if kind == "reflexive" and count == 1:
        return f"{_GAP}{_any_of(_REFLEXIVES)}{_GAP}"
    filler = f"{_SPACES}(?!(?:{_any_of(_CLAUSE)}|{first}){_END}){_FILLER}"
    if kind != "owner":
        return f"(?:{filler}){{{count},{_MAX_FILLERS * count}}}?{_GAP}"
    before = f"(?:{filler}){{{count - 1},{_MAX_FILLERS * (count - 1)}}}?" if count > 1 else ""
    phrase = f"(?:{filler}){{0,{_MAX_FILLERS - 1}}}?{_SPACES}{_GENITIVE}"
    return f"{before}(?:{_SPACES}{_any_of(_POSSESSIVES)}(?:{_SPACES}own)?|{phrase}){_GAP}"


class ExpressionIndex:
    """Finds any of many expressions in a text, in one pass over its words.

    Args:
        expressions: where two could stand at one place, the longer match counts, then the first of them.

    Raises:
        ValueError: if one holds no letter or digit.
    """

    def __init__(self, expressions: Iterable[str]) -> None:
        self._starting: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        for expression in dict.fromkeys(expressions):
            pattern = expression_pattern(expression)
            for start in dict.fromkeys(_first_run(form) for form in _words(expression)[0].forms):
                self._starting.setdefault(start, []).append((pattern, expression))

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """(start, end, expression) of all occurrences, from left to right, none within another."""
        found: list[tuple[int, int, str]] = []
        for match, expression in self._matches(text, 0, len(text)):
            found.append((*match.span(), expression))
        return found

    def find_runs(self, text: str) -> list[tuple[list[tuple[int, int]], str]]:
        """(runs, expression) likewise, a run for each stretch of the expression's own words.

        What stands for a placeholder belongs to the sentence: of "take someone for a ride" the runs are
        "take" and "for a ride", and an expression that is between them is found too, after it.
        """
        return self._runs(text, 0, len(text))

    def _runs(self, text: str, start: int, end: int) -> list[tuple[list[tuple[int, int]], str]]:
        found: list[tuple[list[tuple[int, int]], str]] = []
        for match, expression in self._matches(text, start, end):
            runs = [match.span(group) for group in range(1, len(match.groups()) + 1)] or [match.span()]
            found.append((runs, expression))
            for (_, before), (after, _) in pairwise(runs):
                found += self._runs(text, before, after)
        return found

    def _matches(self, text: str, start: int, end: int) -> Iterator[tuple[re.Match[str], str]]:
        after = start
        plain = str.lower if text.isascii() else _plain
        for word in _RUN.finditer(text, start, end):
            candidates = self._starting.get(plain(word.group()))
            if candidates is None or word.start() < after:
                continue
            matches = ((pattern.match(text, word.start(), end), name) for pattern, name in candidates)
            ends = [(match, name) for match, name in matches if match]
            if ends:
                longest = max(ends, key=lambda found: found[0].end())
                after = longest[0].end()
                yield longest


def inflections(word: str, *, as_verb: bool = True) -> list[str]:
    """The word in lower case, then the forms that it may take: too many rather than too few.

    English plurals, third persons, -ed and -ing forms, irregular verbs and nouns; Portuguese and Galician
    plurals. Neither degrees (a bigger fish is not a big fish), nor genders, nor Portuguese verbs.

    Args:
        as_verb: also -ed and -ing, and irregular verbs' forms.
    """
    word = unicodedata.normalize("NFC", word).lower()
    if word in _VERB_FORMS and as_verb:
        return list(dict.fromkeys([word, *_plurals(word), *_VERB_FORMS[word], *_participles(word)]))
    if word in _ONE_FORM or len(word) < 2 or not word.isalpha():
        return [word]
    return list(dict.fromkeys([word, *_plurals(word), *(_participles(word) if as_verb else ())]))


def _plurals(word: str) -> list[str]:
    """Plurals, which with verbs are third persons."""
    stem, last = word[:-1], word[-1]
    forms = [] if last == "s" else [word + "s"]
    if word.endswith(("s", "x", "z", "sh", "ch", "o", "r")):
        forms.append(word + "es")
    if last == "y" and stem[-1] not in "aeiou":
        forms.append(stem + "ies")
    if word.endswith(("f", "fe")):
        forms.append(word.removesuffix("e")[:-1] + "ves")
    if word in _IRREGULAR_NOUNS:
        forms.append(_IRREGULAR_NOUNS[word])
    if word.endswith("ão"):
        forms += [word[:-2] + "ões", word[:-2] + "ães"]
    if word.endswith("ês"):
        forms.append(word[:-2] + "eses")
    if last == "m":
        forms.append(stem + "ns")
    if last == "z":  # Galician: luz, luces
        forms.append(stem + "ces")
    if last == "l" and stem[-1] in "aeiou":
        accented = {"e": "é", "o": "ó"}
        forms += [stem + "is", stem[:-1] + accented.get(stem[-1], stem[-1]) + "is"]
    return forms


def _participles(word: str) -> list[str]:
    stem, last = word[:-1], word[-1]
    if len(word) < 3:
        return [word + "ing"] if word in _VERB_FORMS else []
    if word.endswith("ie"):
        return [word + "d", word[:-2] + "ying"]
    if last == "e":
        return [word + "d", (word if stem[-1] in "eoy" else stem) + "ing"]
    forms = [word + "ed", word + "ing"]
    if last == "y" and stem[-1] not in "aeiou":
        forms[0] = stem + "ied"
    elif last not in "aeiouwxy" and stem[-1] in "aeiou":
        forms += [word + last + "ed", word + last + "ing"]
    return forms


class _Word(NamedTuple):
    """A word of an expression.

    Attributes:
        forms: that it may have.
        stands_for: what else stands in its place: a phrase, its genitive or a possessive pronoun, a reflexive
            pronoun; None if the word itself is meant.
    """

    forms: list[str]
    stands_for: Literal["phrase", "owner", "reflexive"] | None = None


def _words(expression: str) -> list[_Word]:
    """The words of an expression with their forms."""
    bare = re.sub(r"^\W+|\W+$", "", unicodedata.normalize("NFC", expression))
    written = [word for word in re.split(rf"[\s{_HYPHENS}]+", bare) if word]
    if not written:
        raise ValueError(f"{expression!r} holds no letter or digit: it is no expression")
    plain = [re.sub(f"[{_APOSTROPHES}]", "'", word.lower()) for word in written]
    words = []
    for previous, word, bare_word in zip(["", *plain], written, plain, strict=False):
        kind: Literal["phrase", "owner", "reflexive"] | None = None
        if bare_word in _PHRASES:
            kind = "phrase"
        elif bare_word in _OWNERS:
            kind = "owner"
        elif bare_word == "oneself":
            kind = "reflexive"
        words.append(_Word(inflections(word, as_verb=previous not in _NOUN_FOLLOWS), kind))
    return _settled(words)


def _settled(words: list[_Word]) -> list[_Word]:
    """With placeholders between other words only: at the ends they are pronouns, and alone words."""
    fixed = [place for place, word in enumerate(words) if word.stands_for is None]
    if not fixed:
        return [_Word(word.forms) for word in words]
    pronouns = {
        "phrase": [*_PHRASES, *_PRONOUNS],
        "owner": [*_OWNERS, *_POSSESSIVES],
        "reflexive": _REFLEXIVES,
    }
    return [
        word
        if word.stands_for is None or fixed[0] < place < fixed[-1]
        else _Word(list(dict.fromkeys([*word.forms, *pronouns[word.stands_for]])))
        for place, word in enumerate(words)
    ]


def _spelling(form: str) -> str:
    """A form as a pattern: with any apostrophe, with accents composed or not."""
    letters = []
    for letter in form:
        apart = unicodedata.normalize("NFD", letter)
        if letter in _APOSTROPHES:
            letters.append(f"[{_APOSTROPHES}]")
        elif apart != letter:
            letters.append(f"(?:{re.escape(letter)}|{re.escape(apart)})")
        else:
            letters.append(re.escape(letter))
    return "".join(letters)


_RUN = re.compile(f"{_IN_A_WORD}+")


def _first_run(form: str) -> str:
    """The letters that a form begins with: of `devil's`, `devil`."""
    found = _RUN.match(form)
    assert found is not None  # an expression begins with a letter or digit
    return _plain(found.group())


def _plain(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower()
