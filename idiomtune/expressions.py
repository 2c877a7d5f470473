"""Expressions in running text: capitalised, hyphenated, inflected; and their replacement."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise, product
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

_WORDS: dict[str, str] = {}  # kind → words
for _line in Path(__file__).with_name("words.tsv").read_text(encoding="utf-8").splitlines():
    _kind, _words = _line.split("\t")
    _WORDS[_kind] = f"{_WORDS.get(_kind, '')} {_words}"


def word_list(kind: str) -> list[str]:
    """The words of a kind in `words.tsv`."""
    return _WORDS[kind].split()


# Determiners and prepositions have one form. The word after them is a noun or adjective: in "in the can" it
# is never "canning", in "to boot" never "booted".
BEFORE_NOUNS = frozenset(word_list("before nouns"))
ONE_FORM = BEFORE_NOUNS | {*word_list("small")}
# Words that make no expression by themselves: "the", "to the", "want to", "as well".
FUNCTION_WORDS = ONE_FORM | {*word_list("function")}
# Words that idioms are printed with and without.
_OPTIONAL = frozenset({"a", "an", "the", "to", "be", "one", "ones", "your", "someone", "somebody", "s"})
# The base form → the forms that no rule below gives.
_VERB_FORMS, _NOUN_FORMS = (
    {base: forms for base, *forms in map(str.split, _WORDS[kind].split(","))}
    for kind in ("irregular verbs", "irregular nouns")
)


# Portuguese; Galician: luz, luces.
_ENDINGS = [("ão", "ões"), ("ão", "ães"), ("ês", "eses"), ("m", "ns"), ("z", "ces")]


@lru_cache(maxsize=100_000)
def inflections(word: str, *, as_verb: bool = True) -> tuple[str, ...]:
    """The word in lower case, then its possible forms, too many rather than too few.

    These are English plurals, third persons, -ed and -ing forms, irregular verbs and nouns; Portuguese and
    Galician plurals. Not covered: degrees (a bigger fish is not a big fish), genders, Portuguese verbs.

    Args:
        as_verb: also give -ed and -ing forms, and those of irregular verbs.
    """
    word = unicodedata.normalize("NFC", word).lower()
    irregular = _VERB_FORMS.get(word, []) if as_verb else []
    has_one = word in ONE_FORM or len(word) < 2 or not word.isalpha() or _UNSPACED.search(word)
    if not irregular and has_one:
        return (word,)
    return tuple(dict.fromkeys([word, *_plurals(word), *irregular, *(_participles(word) if as_verb else ())]))


def _plurals(word: str) -> list[str]:
    """Plurals; for verbs, third persons."""
    stem, last = word[:-1], word[-1]
    forms = [] if last == "s" else [word + "s"]
    if word.endswith(("s", "x", "z", "sh", "ch", "o", "r")):
        forms.append(word + "es")
    if last == "y" and stem[-1] not in "aeiou":
        forms.append(stem + "ies")
    if word.endswith(("f", "fe")):
        forms.append(word.removesuffix("e")[:-1] + "ves")
    forms += _NOUN_FORMS.get(word, [])
    forms += [word.removesuffix(end) + plural for end, plural in _ENDINGS if word.endswith(end)]
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


# Expressions as regular expressions: any spelling, inflected words, and phrases for placeholders.

# Scripts without blanks between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)
_HYPHENS = r"\-\u2010\u2011\u2013"  # in a character class
_APOSTROPHES = "'\u2019\u2018\u02bc"
IN_A_WORD = r"[\w\u0300-\u036f]"  # accents may be characters of their own
# Spaces, or one hyphen. A dash between spaces divides a sentence, not an expression.
_GAP = rf"(?:\s+|[{_HYPHENS}])"
_GAPS = re.compile(_GAP)

# Placeholders in a dictionary's entries, and what fills them in running text.
Filled = Literal["phrase", "owner", "reflexive"]
_PLACEHOLDERS: dict[Filled, list[str]] = {
    "phrase": ["someone", "somebody", "something"],
    "owner": ["someone's", "somebody's", "one's"],
    "reflexive": ["oneself"],
}
# Alike, though lower case tells them apart: ß and ss, ligatures, σ and ς, Greek with and without accents.
# In Turkish İ is the capital of i, and I that of ı: of a text whose language is unknown, all four are alike.
_FOLDED = re.compile(
    "[\u00df\u1e9e\u0130-\u0133\u017f\u0386-\u0390\u03a3\u03ac-\u03b0\u03c2\u03ca-\u03ce\u0587\ufb00-\ufb06]"
    "|[IiJj]\u0307|[\u0391-\u03c9]\u0301"
)
_MAYBE_PLACEHOLDER = re.compile("one|some", re.IGNORECASE)
_KIND_OF: dict[str, Filled] = {word: kind for kind, words in _PLACEHOLDERS.items() for word in words}
_REFLEXIVES, _PRONOUNS, _POSSESSIVES = map(word_list, ("reflexives", "pronouns", "possessives"))
_CLAUSE = word_list("clause")  # these begin a clause, so no phrase contains them
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


class Word(NamedTuple):
    """A word of an expression.

    Attributes:
        forms: the word's inflected forms.
        stands_for: for a placeholder, what fills it: a phrase, a genitive or possessive pronoun, a reflexive
            pronoun; None for a fixed word.
    """

    forms: tuple[str, ...]
    stands_for: Filled | None = None


def fold(text: str) -> str:
    """The text with one spelling of letters that are alike; others keep their case.

    >>> fold("Straße, Οδός, İpin")
    'Strasse, Οδοσ, ipin'
    """
    return text if text.isascii() else _FOLDED.sub(_folded_letter, text)


def _folded_letter(match: re.Match[str]) -> str:
    letters = match[0].casefold().replace("\u0131", "i").replace("\u0133", "ij")
    return "".join(c for c in unicodedata.normalize("NFD", letters) if not unicodedata.combining(c))


def _fold_text(text: str) -> tuple[str, list[Edit]]:
    """The folded text, and the edits that lead from it back to the text."""
    if text.isascii():
        return text, []
    pieces = [(*match.span(), _folded_letter(match)) for match in _FOLDED.finditer(text)]
    folded, edits = rewrite(text, pieces)
    moved = (edit for edit in edits if edit.end - edit.start != edit.new_end - edit.new_start)
    return folded, [Edit(*edit[2:], *edit[:2]) for edit in moved]


def lower_case(word: str) -> str:
    """In lower case, with composed accents."""
    return unicodedata.normalize("NFC", word).lower()


def plain_expression(expression: str) -> str:
    """An expression in one spelling, as a key: without differences of case, hyphens and apostrophes."""
    words = re.sub(f"[{_APOSTROPHES}]", "'", lower_case(fold(expression)))
    return " ".join(re.sub(f"[{_HYPHENS}]", " ", words).split())


def _split(expression: str) -> list[str]:
    """The words of an expression, as spelled."""
    # U+02BC is the apostrophe that is a letter.
    expression = unicodedata.normalize("NFC", expression).replace("\u02bc", "'")
    if expression.replace(" ", "").isalpha():
        return expression.split()
    bare = _without_punctuation(expression)
    return [word for word in re.split(rf"[\s{_HYPHENS}]+", bare) if word]


def _forms_at(words: Sequence[str], position: int, forms: Sequence[str]) -> tuple[str, ...]:
    """The forms of a word in lower case: a dictionary's, if it gives any, otherwise what the rules give.

    Args:
        words: of an expression.
        position: of the word in it.
        forms: of the whole expression ("missed the boat"). Those with another number of words are not used.
    """
    if not forms:
        return inflections(words[position], as_verb=_may_be_verb(words, position))
    same = [split for form in forms if len(split := _split(form)) == len(words)]
    return tuple(dict.fromkeys(lower_case(split[position]) for split in [words, *same]))


def _may_be_verb(words: Sequence[str], position: int) -> bool:
    return not position or words[position - 1].lower() not in BEFORE_NOUNS


@lru_cache(maxsize=100_000)
def expression_words(expression: str, forms: tuple[str, ...] = ()) -> tuple[Word, ...]:
    """The words of an expression with their forms.

    Only placeholders between fixed words stand for a phrase: at the ends they become pronouns, alone they are
    plain words.

    Args:
        forms: inflected forms of the whole expression, which replace those by rules.

    Raises:
        ValueError: if it holds no letter or digit, or has more than four placeholders between its words.
    """
    written = _split(expression)
    if not written:
        raise ValueError(f"{expression!r} contains no letter or digit, so it cannot be an expression")
    plain = [re.sub(f"[{_APOSTROPHES}]", "'", word.lower()) for word in written]
    kinds = [_KIND_OF.get(word) for word in plain]
    fixed = [position for position, kind in enumerate(kinds) if kind is None]
    pronouns = {
        "phrase": [*_PLACEHOLDERS["phrase"], *_PRONOUNS],
        "owner": [*_PLACEHOLDERS["owner"], *_POSSESSIVES],
        "reflexive": _REFLEXIVES,
    }
    words = []
    for position, kind in enumerate(kinds):
        of_word = _forms_at(written, position, forms)
        if kind is None or not fixed:
            words.append(Word(of_word))
        elif fixed[0] < position < fixed[-1]:
            words.append(Word(of_word, kind))
        else:
            words.append(Word(tuple(dict.fromkeys([*of_word, *pronouns[kind]]))))
    if (count := sum(word.stands_for is not None for word in words)) > _MAX_PLACEHOLDERS:
        raise ValueError(
            f"{expression!r} has {count} placeholders (someone, one's, …), and may have {_MAX_PLACEHOLDERS}"
        )
    return tuple(words)


def has_placeholder(expression: str) -> bool:
    """Whether an expression has a placeholder between its words, as in "take someone for a ride"."""
    return any(word.stands_for for word in expression_words(expression))


def _without_punctuation(expression: str) -> str:
    """An expression from its first letter or digit to its last, with the signs that belong to it."""
    letters = [i for i, letter in enumerate(expression) if unicodedata.category(letter)[0] in "LNM"]
    if not letters:
        return ""
    first, last = letters[0], letters[-1] + 1
    before, after = _SIGN_BEFORE.search(expression[:first]), _SIGNS_AFTER.match(expression, last)
    return expression[before.start() if before else first : after.end() if after else last]


# ---------------------------------------------------------------- for texts as they are


@lru_cache(maxsize=100_000)
def expression_pattern(expression: str, forms: tuple[str, ...] = ()) -> re.Pattern[str]:
    """The pattern of :func:`find_expression`, with a group for each run of fixed words.

    Raises:
        ValueError: as :func:`expression_words`.
    """
    runs, gaps = _parts(expression_words(expression, forms))
    pattern = "".join(f"({run}){gap}" for run, gap in zip(runs, [*gaps, ""], strict=True))
    return re.compile(pattern if _UNSPACED.search(expression) else _bound(pattern), re.IGNORECASE)


# ---------------------------------------------------------------- for a tokenizer's rules

Normalize = Callable[[str], str]  # what a tokenizer makes of a text: in lower case, without accents
Step = tuple[str, str]  # a regular expression, and what replaces it


def replacements(expression: str, token: str, normalize: Normalize, forms: Sequence[str] = ()) -> list[Step]:
    """The replacement steps from an expression to a token, for texts that a tokenizer has normalised.

    The patterns need no flags. Tokenizers (Oniguruma) read them as Python does, except for `\\K`, which
    Python does not have: what is matched before it is kept. Of an expression with a placeholder the first run
    of words becomes the token, and the others are removed, the last one first.

    Args:
        token: as it is in a normalised text.
    """
    runs, gaps = _parts(_normalize(expression, normalize, forms))
    after = "".join(gap + run for gap, run in zip(gaps, runs[1:], strict=True))
    steps = [(_bound(runs[0] + (f"(?={after}{_END})" if after else "")), token)]
    for last in range(len(gaps), 0, -1):
        between = "".join(gap + run for gap, run in zip(gaps, runs[1:last], strict=False)) + gaps[last - 1]
        # Removed with the space before it.
        before = re.escape(token) + between.removesuffix(_GAP)
        steps.append((_bound(f"{before}{KEEP}{_GAP}{runs[last]}"), ""))
    return steps


def _normalize(expression: str, normalize: Normalize, forms: Sequence[str]) -> list[Word]:
    return [
        word._replace(forms=tuple(dict.fromkeys(map(normalize, [*word.forms, *map(fold, word.forms)]))))
        for word in expression_words(expression, tuple(forms))
    ]


# ---------------------------------------------------------------- pieces of both

_START, _END = rf"(?<!{IN_A_WORD})", rf"(?!{IN_A_WORD})"


def _bound(pattern: str) -> str:
    """The pattern, for whole words only."""
    return f"{_START}{pattern}{_END}"


def _parts(words: Sequence[Word]) -> tuple[list[str], list[str]]:
    """Patterns of an expression's runs of fixed words, and of the placeholders between them."""
    runs, gaps = [""], []
    for position, word in enumerate(words):
        if word.stands_for is None:
            runs[-1] += (_GAP if runs[-1] else "") + _any_of(word.forms)
        elif words[position - 1].stands_for is None:  # the first of several: one gap for all
            count = next(n for n, later in enumerate(words[position:]) if later.stands_for is None)
            gaps.append(_gap(words[position : position + count], runs[0]))
            runs.append("")
    return runs, gaps


def _gap(placeholders: Sequence[Word], first: str) -> str:
    """The pattern of adjacent placeholders, with the spaces around them.

    The shortest match counts, and it does not contain the expression's beginning: in "they take what they
    take him for" the second "take" counts.

    Args:
        first: the pattern of the expression's words before its first placeholder.
    """
    count = len(placeholders)
    kind = placeholders[-1].stands_for
    if kind == "reflexive" and count == 1:
        return f"{_GAP}{_any_of(_REFLEXIVES)}{_GAP}"
    filler = f"{_SPACES}(?!(?:{_any_of(_CLAUSE)}|{first}){_END}){_FILLER}"  # with the space before it
    if kind != "owner":
        return f"(?:{filler}){{{count},{_MAX_FILLERS * count}}}?{_GAP}"
    before = f"(?:{filler}){{{count - 1},{_MAX_FILLERS * (count - 1)}}}?" if count > 1 else ""
    phrase = f"(?:{filler}){{0,{_MAX_FILLERS - 1}}}?{_SPACES}{_GENITIVE}"
    return f"{before}(?:{_SPACES}{_any_of(_POSSESSIVES)}(?:{_SPACES}own)?|{phrase}){_GAP}"


def _any_of(forms: Iterable[str]) -> str:
    return "(?:" + "|".join(map(_spelling_pattern, forms)) + ")"


@lru_cache(maxsize=100_000)
def _spelling_pattern(form: str) -> str:
    """A form as a pattern: any apostrophe, accents composed or not."""
    letters = []
    for letter in form:
        decomposed = unicodedata.normalize("NFD", letter)
        if letter == "\u0131":
            letters.append(f"(?:{letter}|i)")
        elif letter in _APOSTROPHES:
            letters.append(f"[{_APOSTROPHES}]")
        elif decomposed != letter:
            letters.append(f"(?:{re.escape(letter)}|{re.escape(decomposed)})")
        else:
            letters.append(re.escape(letter))
    return "".join(letters)


# Where expressions are in a sentence: capitalised, hyphenated, inflected; and other words in their place.

Span = tuple[int, int]
_MAX_CACHED_TEXTS = 200_000
_CROWDED = 100  # expressions with one word
_Base = tuple[str, bool]  # a word, and whether it may be a verb
Forms = Mapping[str, Sequence[str]]  # expression → its inflected forms
# U+02BC is a letter, but is used as an apostrophe too.
_RUN = re.compile(rf"(?:(?!\u02bc){IN_A_WORD})+")


def find_expression(text: str, expression: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of an expression, as people write it.

    Case, the kind of apostrophe, and space or hyphen make no difference, and any word may be inflected
    (:func:`~idiomtune.expressions`). Only whole words match, in their order, with nothing between
    them: "in the bag" is not in "in the bagpipe", nor "spill the beans" in "spill all the beans".

    Some words of an expression are placeholders. `someone`, `somebody`, `something`, their genitives, and
    `one's` stand for any phrase of up to five words, without punctuation or the first word of a clause, and
    `oneself` for any reflexive pronoun: "take someone for a ride" is in "she took my older brother for a
    ride". At either end of an expression, where the end of the phrase is unknown, they stand for a pronoun
    only.
    """
    folded, edits = _fold_text(text)
    match = expression_pattern(fold(expression)).search(folded)
    return move_span(match.span(), edits) if match else None


class ExpressionIndex:
    """Finds any of many expressions in a text, in one pass over its words.

    Args:
        expressions: where several match at one place, the longest match counts, then the first expression.
        forms: expression → its inflected forms, as :func:`expression_words` takes them.

    Raises:
        ValueError: as :func:`~idiomtune.expressions.expression_words`.
    """

    def __init__(self, expressions: Iterable[str], forms: Forms = MappingProxyType({})) -> None:
        # There may be 100,000: an expression is looked at where a text has the rarest of its words.
        self._names = {fold(name): name for name in reversed(list(expressions))}  # folded → as it is listed
        self._expressions = list(reversed(self._names))
        named = ((key, forms.get(self._names[key])) for key in self._expressions)
        self._forms = {key: tuple(map(fold, of_name)) for key, of_name in named if of_name}
        unspaced = sorted(filter(_UNSPACED.search, self._expressions), key=len, reverse=True)
        self._unspaced = re.compile("|".join(map(re.escape, unspaced))) if unspaced else None
        split = [_split(name) for name in self._expressions]
        counts = Counter(piece for words in split for piece, _ in _pieces(words))
        # Numbers of expressions by the letters that a word of theirs may begin with; by neighbouring words.
        self._by_letters: dict[str, list[int]] = {}
        self._by_words: dict[tuple[_Base, ...], list[int]] = {}
        self._bases: dict[str, set[_Base]] = {}  # form → of which words
        for number, (name, words) in enumerate(zip(self._expressions, split, strict=True)):
            positions = list(range(len(words)))
            if not words or _MAYBE_PLACEHOLDER.search(name):
                expression_words(name)  # refuses what is no expression
                positions = [
                    position for position in positions if words[position].lower() not in _KIND_OF
                ] or positions
            # One of letters or digits, not "&"; of words that are as rare, one that may be inflected.
            first = min(
                positions,
                key=lambda p: (not _RUN.search(words[p]), counts[words[p],], not words[p].isalpha()),
            )
            piece: tuple[str, ...] = (words[first],)
            fixed = {position for position in positions if words[position].isalpha()}
            if name in self._forms or first not in fixed:
                for run in _beginnings(_forms_at(words, first, self._forms.get(name, ())))[0]:
                    self._by_letters.setdefault(run, []).append(number)
                continue
            if counts[piece] > _CROWDED:
                longer = [
                    (s, p) for s, p in _pieces(words) if len(s) > 1 and fixed.issuperset(range(p, p + len(s)))
                ]
                piece, first = min(longer, key=lambda candidate: counts[candidate[0]], default=(piece, first))
            bases = tuple((w.lower(), _may_be_verb(words, p)) for p, w in enumerate(piece, first))
            self._by_words.setdefault(bases, []).append(number)
            for word, as_verb in bases:
                for form in inflections(word, as_verb=as_verb):
                    self._bases.setdefault(form, set()).add((word, as_verb))
        self._sizes = {len(bases) for bases in self._by_words}
        # A text comes again: in each epoch, in several benchmarks, read in several ways.
        self._cached_find = lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._find)
        self._found_runs = lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._find_runs)

    def __reduce__(self) -> tuple[type[ExpressionIndex], tuple[list[str], dict[str, tuple[str, ...]]]]:
        """For pickles and copies: without caches."""
        names = [self._names[key] for key in self._expressions]
        return type(self), (names, {self._names[key]: of_name for key, of_name in self._forms.items()})

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """(start, end, expression) of all occurrences, from left to right, without overlaps."""
        return self._cached_find(text)

    def _find(self, text: str) -> list[tuple[int, int, str]]:
        folded, edits = _fold_text(text)
        matches = self._matches(folded, 0, len(folded))
        spans = [(move_span((runs[0][0], runs[-1][1]), edits), key) for runs, key in matches]
        return [(*span, self._names[key]) for span, key in spans]

    def find_runs(self, text: str) -> Sequence[tuple[list[tuple[int, int]], str]]:
        """(runs, expression) in the same order, with a run (start, end) for each stretch of fixed words.

        What fills a placeholder is not a part of the expression: the runs of "take someone for a ride" are
        "take" and "for a ride", and an expression between them is found too, and listed after it.
        """
        return self._found_runs(text)

    def _find_runs(self, text: str) -> list[tuple[list[Span], str]]:
        folded, edits = _fold_text(text)
        matches = self._runs(folded, 0, len(folded))
        return [([move_span(run, edits) for run in runs], self._names[key]) for runs, key in matches]

    def _runs(self, text: str, start: int, end: int) -> list[tuple[list[tuple[int, int]], str]]:
        pieces: list[tuple[list[tuple[int, int]], str]] = []
        for runs, expression in self._matches(text, start, end):
            pieces.append((runs, expression))
            for (_, before), (after, _) in pairwise(runs):
                pieces += self._runs(text, before, after)
        return pieces

    def _matches(self, text: str, start: int, end: int) -> Iterator[tuple[list[Span], str]]:
        """The runs of the longest match at each position that no earlier match covers."""
        matches = self._matches_of_words(text, start, end)
        if self._unspaced is None:
            yield from matches
            return
        pieces = [([m.span()], m.group()) for m in self._unspaced.finditer(text, start, end)]
        after = start
        for runs, name in sorted([*matches, *pieces], key=lambda match: (match[0][0][0], -match[0][-1][1])):
            if runs[0][0] >= after:
                after = runs[-1][1]
                yield runs, name

    def _matches_of_words(self, text: str, start: int, end: int) -> Iterator[tuple[list[Span], str]]:
        if not self._expressions:
            return
        plain = str.lower if text.isascii() else lower_case
        text_words = [(plain(run.group()), *run.span()) for run in _RUN.finditer(text, start, end)]
        positions: dict[str, list[int]] = {}
        for position, (word, *_) in enumerate(text_words):
            positions.setdefault(word, []).append(position)
        candidates: dict[int, list[tuple[int, int]]] = {}  # first word → (expression, signs before it)
        bases = [self._bases.get(word, ()) for word, *_ in text_words]
        starts = ((size, at) for size in self._sizes for at in range(len(bases) + 1 - size))
        pieces = (piece for size, at in starts for piece in product(*bases[at : at + size]))
        having = chain(
            (number for word in positions for number in self._by_letters.get(word, ())),
            (number for piece in pieces for number in self._by_words.get(piece, ())),
        )
        for number in dict.fromkeys(having):
            beginnings, further, _ = _landmarks(*self._key(number))
            words = iter([word for word, *_ in text_words])
            # In their order: no pattern is compiled for others.
            if all(any(word in letters for word in words) for letters in further):
                for letters, lead in beginnings:
                    for position in positions.get(letters, ()):
                        candidates.setdefault(position, []).append((number, lead))
        after = start
        for position in sorted(candidates):
            matches = [
                (runs, self._expressions[number])
                for number, lead in sorted(candidates[position])
                if text_words[position][1] - lead >= after
                and (runs := self._runs_at(number, text, text_words, position, lead, end))
            ]
            if matches:
                longest = max(matches, key=lambda match: (match[0][-1][1], -match[0][0][0]))
                after = longest[0][-1][1]
                yield longest

    def _runs_at(
        self, number: int, text: str, words: list[tuple[str, int, int]], position: int, lead: int, end: int
    ) -> list[Span] | None:
        """The runs of an expression that begins with a word of a text, or with the signs before it."""
        _, further, is_plain = _landmarks(*self._key(number))
        (_, first, last), *others = words[position : position + 1 + len(further)]
        if not is_plain:
            match = expression_pattern(*self._key(number)).match(text, first - lead, end)
            return match and [match.span(group) for group in range(1, len(match.groups()) + 1)]
        # Without its pattern, which takes a millisecond to compile.
        if len(others) < len(further) or text[first - 1 : first] == "\u02bc":
            return None
        for (word, behind, stop), forms in zip(others, further, strict=True):
            if word not in forms or not _GAPS.fullmatch(text, last, behind):
                return None
            last = stop
        return None if text[last : min(last + 1, end)] == "\u02bc" else [(first, last)]

    def _key(self, number: int) -> tuple[str, tuple[str, ...]]:
        name = self._expressions[number]
        return name, self._forms.get(name, ())


def _pieces(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Each word and each three neighbouring ones (two if there are no more), with the position."""
    for size in {1, min(len(words), 3)}:
        yield from ((tuple(words[at : at + size]), at) for at in range(len(words) + 1 - size))


@lru_cache(maxsize=100_000)
def _landmarks(
    expression: str, forms: tuple[str, ...]
) -> tuple[list[tuple[str, int]], list[frozenset[str]], bool]:
    """The letters that a text must have before an expression's pattern is tried.

    Letters that its first word may begin with, and the number of signs before them (one in ".NET"); those
    that each further fixed word may begin with; whether all words are letters, and none is a placeholder.
    """
    first, *others = words = expression_words(expression, forms)
    further = [_beginnings(word.forms)[0] for word in others if word.stands_for is None]
    is_plain = all(word.stands_for is None and all(map(str.isalpha, word.forms)) for word in words)
    return _beginnings(first.forms)[1], [letters for letters in further if letters], is_plain


@lru_cache(maxsize=100_000)
def _beginnings(forms: tuple[str, ...]) -> tuple[frozenset[str], list[tuple[str, int]]]:
    """The first letters of a word's forms; these with their position in the form.

    They are `devil` for `devil's`, `net` for `.net`. Nothing if a form has none, such as `&`.
    """
    if all(map(str.isalpha, forms)):
        return frozenset(forms), [(form, 0) for form in forms]
    runs = [run for form in forms if (run := _RUN.search(form))]
    if len(runs) < len(forms):
        return frozenset(), []
    starts = dict.fromkeys((lower_case(run.group()), run.start()) for run in runs)
    return frozenset(letters for letters, _ in starts), list(starts)


class Edit(NamedTuple):
    """The characters [start, end) of a text became [new_start, new_end) of the rewritten one."""

    start: int
    end: int
    new_start: int
    new_end: int


def rewrite(text: str, pieces: Iterable[tuple[int, int, str]]) -> tuple[str, list[Edit]]:
    """The text after replacements, and the edits.

    Args:
        pieces: (start, end, what replaces the characters between them), from left to right.
    """
    parts: list[str] = []
    edits: list[Edit] = []
    read = length = 0
    for start, end, new in pieces:
        new_start = length + start - read
        length = new_start + len(new)
        parts += (text[read:start], new)
        edits.append(Edit(start, end, new_start, length))
        read = end
    return "".join([*parts, text[read:]]), edits


def move_span(span: Span, edits: Sequence[Edit]) -> Span:
    """The span's offsets in the rewritten text.

    A span that begins or ends within replaced characters takes in all that replaces them, and one takes in
    what was inserted right behind it.
    """
    first, last = new_first, new_last = span
    for edit in edits:
        if edit.end <= first:
            new_first = first - edit.end + edit.new_end
        elif edit.start < first:
            new_first = edit.new_start
        if edit.end <= last:
            new_last = last - edit.end + edit.new_end
        elif edit.start < last:
            new_last = edit.new_end
    return new_first, new_last


_INSERTED = re.compile(r"\b(an?|the)\s+([^\W\d_]+(?:-[^\W\d_]+)*)\s+(?=([^\W\d_]))", re.IGNORECASE)


def find_with_adjectives(index: ExpressionIndex, text: str) -> Iterator[tuple[int, int, str]]:
    """Verbs and objects with a word between article and noun: "take a big haircut" has "take a haircut".

    Only expressions whose second word is an article are looked for, and no function word is passed over.
    """
    for match in _INSERTED.finditer(text):
        article, inserted, letter = map(str.lower, match.groups())
        if inserted in FUNCTION_WORDS:
            continue
        if article != "the":
            article = "an" if letter in "aeiou" else "a"
        bare, (edit,) = rewrite(text, [(*match.span(), f"{article} ")])
        for start, end, name in index.find(bare):
            verb, *others = plain_expression(name).split()
            is_verb = verb in _VERB_FORMS or verb not in FUNCTION_WORDS
            if (
                start < edit.new_start
                and edit.new_end < end
                and is_verb
                and {*others[:1]} & {"a", "an", "the"}
            ):
                yield start, end + match.end() - edit.new_end, name


def is_among(idiom: str, others: Iterable[str]) -> bool:
    """Whether an idiom is one of others: small words aside, the words of either are among the other's."""
    words = _content_words(idiom)
    return bool(words) and any(
        content and (words <= content or content <= words) for content in map(_content_words, others)
    )


@lru_cache(maxsize=100_000)
def _content_words(idiom: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", idiom.lower())) - _OPTIONAL
