"""Where expressions stand in a sentence: capitalised, hyphenated, inflected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

_HYPHENS = r"\-\u2010\u2011\u2013"  # in a character class
_APOSTROPHES = "'\u2019\u2018\u02bc"
_IN_A_WORD = r"[\w\u0300-\u036f]"  # accents may be characters of their own
# Spaces, or one hyphen. A dash between spaces divides a sentence, not an expression.
_GAP = rf"(?:\s+|[{_HYPHENS}])"

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
    """
    found = expression_pattern(expression).search(text)
    return found.span() if found else None


def plain_expression(expression: str) -> str:
    """One spelling of an expression, to look it up by: case, hyphens and apostrophes make no difference."""
    words = re.sub(f"[{_APOSTROPHES}]", "'", _plain(expression))
    return " ".join(re.sub(f"[{_HYPHENS}]", " ", words).split())


@lru_cache(maxsize=100_000)
def expression_pattern(expression: str) -> re.Pattern[str]:
    """What :func:`find_expression` looks for.

    Raises:
        ValueError: if the expression holds no letter or digit.
    """
    return re.compile(_pattern(_word_forms(expression)), re.IGNORECASE)


def normalized_pattern(expression: str, normalize: Callable[[str], str]) -> str:
    """The same for texts that a tokenizer has normalised: in lower case, say, and without accents.

    It needs no flags, and tokenizers (Oniguruma) read it as Python does.
    """
    forms = [list(dict.fromkeys(map(normalize, words))) for words in _word_forms(expression)]
    return _pattern(forms)


def _pattern(forms: Sequence[Sequence[str]]) -> str:
    parts = ["(?:" + "|".join(map(_spelling, words)) + ")" for words in forms]
    return rf"(?<!{_IN_A_WORD}){_GAP.join(parts)}(?!{_IN_A_WORD})"


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
            for start in dict.fromkeys(_first_run(form) for form in _word_forms(expression)[0]):
                self._starting.setdefault(start, []).append((pattern, expression))

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """(start, end, expression) of all occurrences, from left to right, none within another."""
        found: list[tuple[int, int, str]] = []
        after = 0
        plain = str.lower if text.isascii() else _plain
        for word in _RUN.finditer(text):
            candidates = self._starting.get(plain(word.group()))
            if candidates is None or (start := word.start()) < after:
                continue
            matches = ((pattern.match(text, start), expression) for pattern, expression in candidates)
            ends = [(match.end(), expression) for match, expression in matches if match]
            if ends:
                longest = max(ends, key=lambda end: end[0])
                after = longest[0]
                found.append((start, *longest))
        return found


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


def _word_forms(expression: str) -> list[list[str]]:
    """For each word of an expression its forms."""
    bare = re.sub(r"^\W+|\W+$", "", unicodedata.normalize("NFC", expression))
    words = [word for word in re.split(rf"[\s{_HYPHENS}]+", bare) if word]
    if not words:
        raise ValueError(f"{expression!r} holds no letter or digit: it is no expression")
    before = ["", *(re.sub(f"[{_APOSTROPHES}]", "'", word.lower()) for word in words)]
    return [
        inflections(word, as_verb=previous not in _NOUN_FOLLOWS)
        for word, previous in zip(words, before, strict=False)
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
