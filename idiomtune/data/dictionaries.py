"""Expressions and their meanings from dictionaries: Wiktionary, WordNet, and any table.

- Wiktionary as wiktextract reads it (Ylonen 2022, "Wiktextract: Wiktionary as Machine-Readable Structured
  Data"), published by kaikki.org: a JSON object per line, with `word`, `lang_code`, `pos`, `forms` and
  `senses`.
- WordNet's own files (`index.*`, `data.*`, `*.exc`; the manual pages wndb(5) and morphy(7)): Princeton's 3.0
  and 3.1, and Open English WordNet in the same form.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from idiomtune.data.sources import download
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import FUNCTION_WORDS, word_list
from idiomtune.io.files import cache_folder, is_file, is_folder, user_path
from idiomtune.io.tables import lines_of

T = TypeVar("T")
Report = Callable[[str | Path, str, str], None]  # file, row, what is wrong with it

_IDIOMATIC = {"idiomatic", "figurative", "figuratively", "proverb", "slang", "euphemistic"}  # tags of senses
_IDIOMS = {"proverb", "idiom", "phraseologism"}  # parts of speech
_NO_IDIOMS = {"name", "prep", "conj", "det", "pron", "particle", "article", "num", "character", "symbol"}
_NO_FORMS = {"table-tags", "inflection-template", "class", "romanization", "transliteration", "canonical"}
# Lines without any of these are not parsed: they have no wanted sense and no spelling of one.
_WORTH = [f'"{name}"'.encode() for name in sorted({*_IDIOMATIC, *_IDIOMS, "alt_of", "form_of"})]
_REFERENCE = re.compile(
    r"(?i)(?:(?:alternative|archaic|dated|euphemistic|nonstandard|obsolete|rare|uncommon)(?: letter-case)? "
    r"(?:form|spelling|variant)|misspelling|(?P<synonym>synonym)) of (?P<target>[^.;:(\u201c]+)"
)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_NAMES = dict(name.split("=") for name in word_list("languages"))  # code → English name
_KAIKKI = "https://kaikki.org/dictionary"
_DEBIAN = "/usr/share/wordnet"  # its package wordnet-base
_PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}  # of WordNet's files
_LIVING = ("05", "20")  # WordNet's files of animals and plants


class Entry(NamedTuple):
    """One sense of an expression, of a dictionary or a glossary.

    Attributes:
        expression: as a dictionary lists it: "break the ice", "take someone for a ride".
        meaning: what it says in other words; "" where that is not known.
        part_of_speech: as the dictionary names it.
        forms: its inflected forms, from a dictionary; without any, rules inflect its words.
        language, source, licence, example: facts about it, which change no embedding.
        literal: whether it is used literally too, or what it then means; None where that is not known.
    """

    expression: str
    meaning: str
    part_of_speech: str | None = None
    forms: tuple[str, ...] = ()
    language: str | None = None
    source: str | None = None
    licence: str | None = None
    literal: bool | str | None = None
    example: str | None = None


def is_expression(text: str) -> bool:
    """Whether a text has two words or more, not all of which are function words."""
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]
    return len(words) > 1 and not FUNCTION_WORDS.issuperset(words)


# ---------------------------------------------------------------- Wiktionary


class _Sense(BaseModel):
    glosses: list[str] = []
    tags: list[str] = []
    alt_of: list[dict[str, Any]] = []
    form_of: list[dict[str, Any]] = []


class _DictionaryWord(BaseModel):
    """A line of the extract; one of a redirect has no word."""

    word: str = ""
    lang: str = ""
    lang_code: str = ""
    pos: str = ""
    tags: list[str] = []
    senses: list[_Sense] = []
    forms: list[dict[str, Any]] = []


def wiktionary_file(location: str | None, language: str) -> tuple[Path, str]:
    """The extract of a language, and its name for records.

    Args:
        location: a file, or an address to download; None = kaikki.org's.
        language: `pt`, or as kaikki.org names it.

    Raises:
        UserError: if the file is missing, or the language has no known name.
        DataMissingError: if it cannot be downloaded.
    """
    if location is not None and not location.startswith(("https://", "http://")):
        path = user_path(location, "path")
        if not is_file(path):
            raise UserError("there is no such file", option="path", file=location)
        return path, "Wiktionary"
    name = _NAMES.get(language, language)
    if not name.istitle():
        raise UserError("give the language's English name, or path=<file>", option="language", file=language)
    file = f"kaikki.org-dictionary-{name.replace(' ', '')}"
    tail = f"words/{file}-words.jsonl" if name == "English" else f"{file}.jsonl"
    url = location or f"{_KAIKKI}/{name.replace(' ', '%20')}/{tail}"
    path = cache_folder() / "wiktionary" / url.rpartition("/")[2]
    download(url, path, "fetch this address by other means, and give path=<file>")
    downloaded = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return path, f"Wiktionary (kaikki.org, {downloaded:%Y-%m-%d})"


def read_wiktionary(
    path: Path, source: str, language: str, report: Report, *, all_senses: bool = False
) -> list[Entry]:
    """The expressions of a language, each with its senses in the dictionary's order.

    Lines are read one at a time. A cross-reference ("alternative form of …") has the senses of what it refers
    to; an entry that is only an inflected form is added to the forms of its expression.

    Args:
        path: an extract, packed (`.gz`) or not, which may have other languages too.
        source: what to call it.
        language: its code, or English name.
        report: gets lines that cannot be read.
        all_senses: also those that are not tagged idiomatic, figurative, proverb, slang or euphemistic.

    Raises:
        UserError: if the file cannot be read, or has no such expression.
    """
    senses: dict[str, list[Entry]] = {}
    references: dict[str, tuple[str, Entry]] = {}  # word → what it refers to, its own
    forms: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for number, line in enumerate(lines_of(path), 1):
        is_whole = line.rstrip()[-1:] in (b"}", b"")
        if is_whole and not (line.strip() and (all_senses or any(part in line for part in _WORTH))):
            continue
        try:
            entry = _DictionaryWord.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors()[0]
            report(path, f"line {number}", f"field {'.'.join(map(str, problem['loc']))!r}: {problem['msg']}")
            continue
        word, pos = entry.word, entry.pos
        if language not in (entry.lang_code, entry.lang) or pos in _NO_IDIOMS or not is_expression(word):
            continue
        for form in entry.forms:
            # "has kicked the bucket" is found as "kicked the bucket".
            name = str(form.get("form"))
            if _NO_FORMS.isdisjoint(form.get("tags", ())) and name.count(" ") == word.count(" "):
                forms[word][name] = None
        for sense in entry.senses:
            is_wanted = all_senses or pos in _IDIOMS or not _IDIOMATIC.isdisjoint([*entry.tags, *sense.tags])
            gloss = (sense.glosses or [""])[-1]
            item = Entry(word, gloss, pos, (), language, source, "cc-by-sa-4.0")
            referred = _REFERENCE.match(gloss)
            if sense.form_of:
                forms[str(sense.form_of[0].get("word"))][word] = None
            elif sense.alt_of or referred:
                target = str(sense.alt_of[0].get("word")) if sense.alt_of else referred["target"].strip()  # type: ignore[index]
                is_meaning = is_wanted and referred is not None and referred["synonym"]
                references.setdefault(word, (target, item._replace(meaning=target if is_meaning else "")))
            elif is_wanted:
                senses.setdefault(word, []).append(item)
    for word in references.keys() - senses.keys():
        (target, item), passed = references[word], {word}
        while target not in senses and target in references and target not in passed:
            passed.add(target)
            target, item = references[target]
        targets = senses.get(target, [item] if item.meaning else [])
        senses[word] = [entry._replace(expression=word) for entry in targets]
    if not senses:
        raise UserError(f"has no expression of the language {language} with such senses", file=path)
    return [
        entry._replace(forms=tuple(form for form in forms[word] if form != word))
        for word, entries in senses.items()
        for entry in entries
    ]


# ---------------------------------------------------------------- WordNet


def read_wordnet(location: str | None, report: Report) -> list[Entry]:
    """WordNet's lemmas of several words with their senses, the most frequent first.

    It does not mark idioms: names and names of species are left out, everything else is taken.

    Args:
        location: the folder of its files; None = `$WNSEARCHDIR`, or Debian's.
        report: gets lines that cannot be read.

    Raises:
        DataMissingError: if it is in no known place.
        UserError: if the folder does not have its files.
    """
    folder = user_path(location or os.environ.get("WNSEARCHDIR", _DEBIAN), "path")
    if not is_folder(folder):
        raise DataMissingError(
            f"there is no folder {folder} with WordNet's files (data.noun, index.noun, …): give path=. "
            "Debian has them as wordnet-base; otherwise unpack "
            "https://wordnetcode.princeton.edu/wn3.1.dict.tar.gz, or the WNDB files of https://en-word.net",
            option="from",
            file="wordnet",
        )
    source, licence = _edition(folder / "data.noun")
    senses: dict[str, list[tuple[int, Entry]]] = {}
    for part, name in _PARTS.items():
        synsets = dict(_records(folder / f"data.{part}", _synset, report))
        forms: defaultdict[str, list[str]] = defaultdict(list)
        if is_file(exceptions := folder / f"{part}.exc"):
            for form, *lemmas in _records(exceptions, list, report):
                for lemma in lemmas:
                    forms[_insert_blanks(lemma)].append(_insert_blanks(form))
        for lemma, num_met, ids in _records(folder / f"index.{part}", _lemma, report):
            for words, gloss in map(synsets.get, ids, repeat(((), ""))) if is_expression(lemma) else ():
                for word in (word for word in words if word.lower() == lemma):
                    item = Entry(word, gloss, name, tuple(forms[lemma]), "en", source, licence)
                    senses.setdefault(lemma, []).append((-num_met, item))
    return [entry for of_lemma in senses.values() for _, entry in sorted(of_lemma, key=lambda pair: pair[0])]


def _insert_blanks(word: str) -> str:
    return word.replace("_", " ")


def _lemma(fields: list[str]) -> tuple[str, int, list[str]]:
    """A line of an index: lemma, frequencies of its senses, synsets."""
    synsets = fields[6 + int(fields[3]) :]
    if len(synsets) != int(fields[2]):
        raise ValueError(f"{len(synsets)} senses, not {fields[2]}")
    return _insert_blanks(fields[0]), int(fields[5 + int(fields[3])]), synsets


def _synset(fields: list[str]) -> tuple[str, tuple[list[str], str]]:
    """A line of the data: synset; words without names, definition."""
    words = [_insert_blanks(word.partition("(")[0]) for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
    bar = fields.index("|")
    if fields[2] == "n":
        # "New York" is an instance; "Academy Award" and "Canis lupus" are names, "Dutch courage" is not.
        is_living = fields[1] in _LIVING
        words = [word for word in words if not (is_living and word[0].isupper()) and not _is_name(word)]
        words = [] if "@i" in fields[:bar] else words
    return fields[0], (words, " ".join(fields[bar + 1 :]))


def _is_name(word: str) -> bool:
    return all(part[0].isupper() or part in FUNCTION_WORDS for part in _WORD.findall(word))


def _edition(path: Path) -> tuple[str, str]:
    """Edition and licence in the head of a file of WordNet."""
    head = b" ".join(islice(lines_of(path), 40)).decode(errors="replace")
    if "English WordNet" in head:
        return "Open English WordNet", "cc-by-4.0"
    edition = re.search(r"WordNet \d\.\d", head)
    return edition[0] if edition else "WordNet", "WordNet License"


def _records(path: Path, make: Callable[[list[str]], T], report: Report) -> Iterator[T]:
    """The result of `make` for each line's fields, after the licence at the head of a file of WordNet."""
    for number, line in enumerate(lines_of(path), 1):
        if not line.startswith(b" ") and line.strip():
            try:
                record = make(line.decode().split())
            except (ValueError, IndexError) as error:
                report(path, f"line {number}", f"is not as wndb(5) has it: {error}")
            else:
                yield record
