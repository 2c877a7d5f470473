"""Expressions as regular expressions: any spelling, inflected words, and phrases for placeholders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from train.expressions.inflections import BEFORE_NOUNS, inflections

_HYPHENS = r"\-\u2010\u2011\u2013"  # in a character class
_APOSTROPHES = "'\u2019\u2018\u02bc"
_ACCENT = r"[\u0300-\u036f]"
IN_A_WORD = r"[\w\u0300-\u036f]"  # accents may be characters of their own
# Spaces, or one hyphen. A dash between spaces divides a sentence, not an expression.
_GAP = rf"(?:\s+|[{_HYPHENS}])"

# Placeholders in a dictionary's entries, and what fills them in running text.
_PHRASES, _OWNERS = ("someone", "somebody", "something"), ("someone's", "somebody's", "one's")
_REFLEXIVES_TEXT = "myself yourself himself herself itself oneself ourselves yourselves themselves"
_PRONOUNS_TEXT = "me you him her it us them this that these those everyone everybody anyone anybody"
_POSSESSIVES = ["my", "your", "his", "her", "its", "our", "their", "whose"]
# These begin a clause, so no phrase contains them.
_CLAUSE_TEXT = "although because but if though unless until when where whether which while who whom"
_REFLEXIVES, _PRONOUNS, _CLAUSE = map(str.split, (_REFLEXIVES_TEXT, _PRONOUNS_TEXT, _CLAUSE_TEXT))
_MAX_FILLERS = 5  # words of a phrase
_MAX_PLACEHOLDERS = 4  # of an expression; the time that a text takes is multiplied by up to 5 for each
# Letters and spaces of a phrase are listed, since libraries of regular expressions differ in what \w and \s
# match. Both cases are listed, and case is not ignored: Oniguruma would also read "ss" as the one letter ß,
# and try each reading. A word has at most 40 letters; without a limit, long texts of letters would take for
# ever.
_LETTERS = (
    r"(?-i:[0-9A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
    r"\u0300-\u036f\u0370-\u052f\u1e00-\u1eff]{1,40})"
)
_SPACES = r"[ \t\n\r\u00a0]{1,40}"
_FILLER = rf"[$#@]?{_LETTERS}(?:[{_HYPHENS}{_APOSTROPHES}&]{_LETTERS}){{0,4}}[{_APOSTROPHES}]?"
_GENITIVE = rf"{_LETTERS}(?:[{_HYPHENS}]{_LETTERS}){{0,4}}(?:[{_APOSTROPHES}]s|(?<=s)[{_APOSTROPHES}])"
# Signs that belong to a name, at its beginning (.NET, #metoo, $TSLA) and its end (C++, C#, 100%). What else
# is around an expression is the punctuation of a dictionary or a sentence.
_SIGN_BEFORE, _SIGNS_AFTER = re.compile(r"(?<!\.)[.#@$]$"), re.compile(r"[+#%]+")
KEEP = r"\K"  # in Oniguruma: what is matched before it is kept


def plain_expression(expression: str) -> str:
    """An expression in one spelling, as a key: without differences of case, hyphens and apostrophes."""
    words = re.sub(f"[{_APOSTROPHES}]", "'", lower_case(expression))
    return " ".join(re.sub(f"[{_HYPHENS}]", " ", words).split())


@lru_cache(maxsize=100_000)
def expression_pattern(expression: str) -> re.Pattern[str]:
    """What :func:`~train.expressions.find_expression` looks for, with a group for each run of fixed words.

    Raises:
        ValueError: as :func:`expression_words`.
    """
    parts = _parts(expression_words(expression))
    if len(parts) == 1:
        return re.compile(_bounded(parts[0]), re.IGNORECASE)
    runs, gaps = parts[::2], parts[1::2]
    pattern = f"({runs[0]})" + "".join(f"{gap}({run})" for gap, run in zip(gaps, runs[1:], strict=True))
    return re.compile(_bounded(pattern), re.IGNORECASE)


Normalize = Callable[[str], str]  # what a tokenizer makes of a text: in lower case, without accents
Step = tuple[str, str]  # a regular expression, and what replaces it


def replacements(expression: str, token: str, normalize: Normalize) -> list[Step]:
    """The steps by which an expression becomes a token, for texts that a tokenizer has normalised.

    The patterns need no flags. Tokenizers (Oniguruma) read them as Python does, except for `\\K`, which
    Python does not have: what is matched before it is kept. Of an expression with a placeholder the first run
    of words becomes the token, and the others are removed, the last one first.

    Args:
        token: as it is in a normalised text.
    """
    parts = _parts(_normalized(expression, normalize))
    if len(parts) == 1:
        return [(_bounded(parts[0]), token)]
    steps = [(_bounded(f"{parts[0]}(?={''.join(parts[1:])}{_END})"), token)]
    for last in range(len(parts) - 1, 0, -2):
        # Removed with the space before it.
        kept = re.escape(token) + "".join(parts[1:last]).removesuffix(_GAP)
        steps.append((_bounded(f"{kept}{KEEP}{_GAP}{parts[last]}"), ""))
    return steps


def whole_pattern(expression: str, normalize: Normalize) -> str:
    """An expression with what fills its placeholders, to be read as the patterns of :func:`replacements`."""
    return _bounded("".join(_parts(_normalized(expression, normalize))))


def insertion_pattern(expression: str, normalize: Normalize) -> str:
    """The empty place after an expression, for the same use."""
    return whole_pattern(expression, normalize) + KEEP


def word_end_patterns(expression: str, inserted: str, normalize: Normalize) -> list[str]:
    """The empty place behind each of an expression's words, and of those that fill its placeholders.

    A mark that is put there, an accent, prevents other expressions from being found within it. The last place
    comes first, as marks may follow the place that a pattern looks for, and not precede it.

    Args:
        inserted: what comes after the expression.
    """
    words = _normalized(expression, normalize)
    filler = f"(?:{_filler(_parts(words)[0])})"
    # The words with how many each may stand for; the spaces before a word belong to it.
    pieces = [(_any_of(words[0].forms), 1)]
    for word in words[1:]:
        pieces.append((_GAP + _any_of(word.forms), 1) if word.stands_for is None else (filler, _MAX_FILLERS))
    patterns = []
    for place, (piece, most) in reversed(list(enumerate(pieces))):
        before = [p if n == 1 else f"{p}{{0,{n}}}?" for p, n in pieces[:place]]
        after = [f"{p}{_ACCENT}?" if n == 1 else f"{p}{{0,{n}}}?" for p, n in pieces[place + 1 :]]
        for count in range(most, 0, -1):
            rest = f"{piece}{{0,{most - count}}}?" if count < most else ""
            behind = f"(?={rest}{''.join(after)}{re.escape(inserted)})"
            patterns.append(f"{_START}{''.join(before)}{piece * count}{KEEP}{behind}")
    return patterns


def _normalized(expression: str, normalize: Normalize) -> list[Word]:
    return [
        word._replace(forms=list(dict.fromkeys(map(normalize, word.forms))))
        for word in expression_words(expression)
    ]


_START, _END = rf"(?<!{IN_A_WORD})", rf"(?!{IN_A_WORD})"


def _bounded(pattern: str) -> str:
    """The pattern, for whole words only."""
    return f"{_START}{pattern}{_END}"


def _any_of(forms: Sequence[str]) -> str:
    return "(?:" + "|".join(map(_spelling, forms)) + ")"


def _parts(words: Sequence[Word]) -> list[str]:
    """Patterns of an expression's runs of fixed words and, between them, of what fills its placeholders."""
    parts = [""]
    for place, word in enumerate(words):
        if word.stands_for is not None:
            if words[place - 1].stands_for is None:  # the first of several: one gap for all
                count = next(n for n, later in enumerate(words[place:]) if later.stands_for is None)
                parts += [_gap(words[place : place + count], parts[0]), ""]
        else:
            parts[-1] += (_GAP if parts[-1] else "") + _any_of(word.forms)
    return parts


def _gap(placeholders: Sequence[Word], first: str) -> str:
    """What fills adjacent placeholders, with the spaces around it.

    The shortest match counts, and it does not contain the expression's beginning: in "they take what they
    take him for" the second "take" counts.

    Args:
        first: the pattern of the expression's words before its first placeholder.
    """
    count = len(placeholders)
    kind = placeholders[-1].stands_for
    if kind == "reflexive" and count == 1:
        return f"{_GAP}{_any_of(_REFLEXIVES)}{_GAP}"
    filler = _filler(first)
    if kind != "owner":
        return f"(?:{filler}){{{count},{_MAX_FILLERS * count}}}?{_GAP}"
    before = f"(?:{filler}){{{count - 1},{_MAX_FILLERS * (count - 1)}}}?" if count > 1 else ""
    phrase = f"(?:{filler}){{0,{_MAX_FILLERS - 1}}}?{_SPACES}{_GENITIVE}"
    return f"{before}(?:{_SPACES}{_any_of(_POSSESSIVES)}(?:{_SPACES}own)?|{phrase}){_GAP}"


def _filler(first: str) -> str:
    """A word of a phrase, with the space before it."""
    return f"{_SPACES}(?!(?:{_any_of(_CLAUSE)}|{first}){_END}){_FILLER}"


class Word(NamedTuple):
    """A word of an expression.

    Attributes:
        forms: the word's inflected forms.
        stands_for: for a placeholder, what fills it: a phrase, a genitive or possessive pronoun, a reflexive
            pronoun; None for a fixed word.
    """

    forms: list[str]
    stands_for: Literal["phrase", "owner", "reflexive"] | None = None


def expression_words(expression: str) -> list[Word]:
    """The words of an expression with their forms.

    Raises:
        ValueError: if it holds no letter or digit, or has more than four placeholders between its words.
    """
    bare = _without_punctuation(unicodedata.normalize("NFC", expression))
    written = [word for word in re.split(rf"[\s{_HYPHENS}]+", bare) if word]
    if not written:
        raise ValueError(f"{expression!r} contains no letter or digit, so it cannot be an expression")
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
        words.append(Word(inflections(word, as_verb=previous not in BEFORE_NOUNS), kind))
    words = _with_pronouns_at_ends(words)
    if (count := sum(word.stands_for is not None for word in words)) > _MAX_PLACEHOLDERS:
        raise ValueError(
            f"{expression!r} has {count} placeholders (someone, one's, …), and may have {_MAX_PLACEHOLDERS}"
        )
    return words


def has_placeholder(expression: str) -> bool:
    """Whether any phrase may stand between its words, as in "take someone for a ride"."""
    return any(word.stands_for for word in expression_words(expression))


def _without_punctuation(expression: str) -> str:
    """An expression from its first letter or digit to its last, with the signs that belong to it."""
    places = [place for place, letter in enumerate(expression) if unicodedata.category(letter)[0] in "LNM"]
    if not places:
        return ""
    first, last = places[0], places[-1] + 1
    before, after = _SIGN_BEFORE.search(expression[:first]), _SIGNS_AFTER.match(expression, last)
    return expression[before.start() if before else first : after.end() if after else last]


def _with_pronouns_at_ends(words: list[Word]) -> list[Word]:
    """Only placeholders between fixed words stay: at the ends they become pronouns, alone plain words."""
    fixed = [place for place, word in enumerate(words) if word.stands_for is None]
    if not fixed:
        return [Word(word.forms) for word in words]
    pronouns = {
        "phrase": [*_PHRASES, *_PRONOUNS],
        "owner": [*_OWNERS, *_POSSESSIVES],
        "reflexive": _REFLEXIVES,
    }
    return [
        word
        if word.stands_for is None or fixed[0] < place < fixed[-1]
        else Word(list(dict.fromkeys([*word.forms, *pronouns[word.stands_for]])))
        for place, word in enumerate(words)
    ]


def _spelling(form: str) -> str:
    """A form as a pattern: any apostrophe, accents composed or not."""
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


def lower_case(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower()
