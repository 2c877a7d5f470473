"""Expressions and their meanings from dictionaries: Wiktionary, WordNet, and any table.

- Wiktionary as wiktextract reads it (Ylonen 2022, "Wiktextract: Wiktionary as Machine-Readable Structured
  Data"), published by kaikki.org: a JSON object per line, with `word`, `lang_code`, `pos`, `forms` and
  `senses`.
- WordNet's own files (`index.*`, `data.*`, `*.exc`; the manual pages wndb(5) and morphy(7)): Princeton's 3.0
  and 3.1, and Open English WordNet in the same form.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from train.data.own.forms import GLOSSARY
from train.data.own.table import FieldError, Record, Source, Table
from train.data.sources import download
from train.errors import DataMissingError, UserError
from train.io.files import cache_folder, expanded, is_file, is_folder, one_line, read_json

log = logging.getLogger(__name__)

_IDIOMATIC = {"idiomatic", "figurative", "figuratively", "proverb", "slang", "euphemistic"}  # tags of senses
_IDIOMS = {"proverb", "idiom", "phraseologism"}  # parts of speech
_NO_IDIOMS = {"name", "prep", "conj", "det", "pron", "particle", "article", "num", "character", "symbol"}
_WIKTIONARY_LICENCE = "cc-by-sa-4.0"  # and GFDL
_NO_FORMS = {"table-tags", "inflection-template", "class", "romanization", "transliteration", "canonical"}
# A line without any of these has no sense that is wanted, nor another spelling of one, and is not parsed.
_WORTH = [f'"{name}"'.encode() for name in sorted({*_IDIOMATIC, *_IDIOMS, "alt_of", "form_of"})]
_REFERENCE = re.compile(
    r"(?:(?:alternative|archaic|dated|euphemistic|nonstandard|obsolete|rare|uncommon)(?: letter-case)? "
    r"(?:form|spelling|variant)|misspelling|(?P<synonym>synonym)) of (?P<target>[^.;:(\u201c]+)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
# Words that make no expression by themselves, as in "to the", "want to" and "as well".
_FUNCTION_WORDS = frozenset(
    """
a about above across after again against all along also although always am among an and another any are around
as at away back be because been before behind being below beneath beside between beyond both but by can could
did do does doing done down during each either else enough even ever every few for from had has have having he
her here hers him his how i if in inside into is it its just least less let like little many may me mine might
more most much must my near need neither never no nor not now of off often on once one only onto or other
others ought our out outside over own quite rather same shall she should since so some somebody someone
something soon still such than that the their them then there these they this those though through throughout
to together too toward towards under until up upon us used very want was we well were what when where whether
which while who whom whose why will with within without would yet you your one's someone's somebody's oneself
à ao aos as com como da das de dele do dos e ela ele em entre essa esse esta este isso isto já la lo mais mas me
mesmo muito na nas nem no nos não o os ou para pela pelas pelo pelos por quando que quem se sem ser seu sua são
também te tem ter um uma
""".split()
)
# Languages by the names of kaikki.org's folders. Any other name of a folder there will do.
_NAMES = dict(
    pair.split()
    for pair in """
ar Arabic, bg Bulgarian, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, es Spanish, et Estonian,
eu Basque, fa Persian, fi Finnish, fr French, ga Irish, gl Galician, he Hebrew, hi Hindi, hu Hungarian, hy Armenian,
id Indonesian, is Icelandic, it Italian, ka Georgian, ko Korean, la Latin, lt Lithuanian, lv Latvian, mk Macedonian,
nl Dutch, pl Polish, pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovene, sq Albanian, sv Swedish,
tr Turkish, uk Ukrainian, vi Vietnamese
""".split(",")
)
_KAIKKI = "https://kaikki.org/dictionary"
_WORDNETS = ("/usr/share/wordnet",)  # where Debian's package has it
_PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}  # of WordNet's files
_LIVING = ("05", "20")  # WordNet's files of animals and plants

Report = Callable[[str | Path, str, str], None]  # file, row, what is wrong with it


class DictionaryEntry(NamedTuple):
    """One sense of an expression in a dictionary.

    Attributes:
        expression: as the dictionary lists it.
        gloss: its complete definition.
        part_of_speech: as the dictionary names it.
        forms: inflected forms of the whole expression.
        source, licence: whose it is.
    """

    expression: str
    gloss: str
    part_of_speech: str = ""
    forms: tuple[str, ...] = ()
    source: str = ""
    licence: str = ""


def is_expression(text: str) -> bool:
    """Whether a text has two words or more, not all of which are function words."""
    words = [word.lower().replace("\u2019", "'") for part in text.split() for word in _WORD.findall(part)]
    return len(words) > 1 and not _FUNCTION_WORDS.issuperset(words)


# ---------------------------------------------------------------- Wiktionary


class _Reference(BaseModel):
    word: str


class _Sense(BaseModel):
    glosses: list[str] = []
    tags: list[str] = []
    alt_of: list[_Reference] = []
    form_of: list[_Reference] = []


class _Form(BaseModel):
    form: str
    tags: list[str] = []


class _Word(BaseModel):
    """A line of the extract; one of a redirect has no word."""

    word: str = ""
    lang: str = ""
    lang_code: str = ""
    pos: str = ""
    tags: list[str] = []
    senses: list[_Sense] = []
    forms: list[_Form] = []


def wiktionary_file(place: str | None, language: str) -> tuple[Path, str]:
    """The extract of a language, and what to call it.

    Args:
        place: a file, or an address to download; None = kaikki.org's.
        language: `pt`, or as kaikki.org names it.

    Raises:
        UserError: if the file is missing, or the language has no known name.
        DataMissingError: if it cannot be downloaded.
    """
    if place is not None and not place.startswith(("https://", "http://")):
        path = expanded(place, "path")
        if not is_file(path):
            raise UserError("there is no such file", option="path", file=place)
        return path, "Wiktionary"
    name = _NAMES.get(language, language)
    if place is None and (len(name) < 4 or not name[0].isupper()):
        raise UserError(
            f"is not one of {', '.join(_NAMES)}: give the language's English name, or path=<file>",
            option="language",
            file=language,
        )
    folder, file = name.replace(" ", "%20"), f"kaikki.org-dictionary-{name.replace(' ', '')}"
    tail = f"words/{file}-words.jsonl" if name == "English" else f"{file}.jsonl"
    url = place or f"{_KAIKKI}/{folder}/{tail}"
    path = cache_folder() / "wiktionary" / url.rpartition("/")[2]
    download(url, path, "path=<file>")
    return path, f"Wiktionary (kaikki.org, {read_json(path.with_name(f'{path.name}.json'))['date']})"


def read_wiktionary(
    path: Path, source: str, language: str, report: Report, *, all_senses: bool = False
) -> list[DictionaryEntry]:
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
        UserError: if the file cannot be read, or has no line of the language.
    """
    senses: dict[str, list[DictionaryEntry]] = {}
    # To what, and the entry, if what it refers to, a single word, does for a meaning.
    references: dict[str, tuple[str, DictionaryEntry | None]] = {}
    forms_of: dict[str, tuple[str, ...]] = {}
    inflected: dict[str, list[str]] = {}
    languages: Counter[str] = Counter()
    for number, line in enumerate(_lines(path), 1):
        line = line.strip()
        if not line or (line[-1:] == b"}" and not all_senses and not any(part in line for part in _WORTH)):
            continue
        try:
            entry = _Word.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            report(path, f"line {number}", f"field {where!r}: {problem['msg']}" if where else problem["msg"])
            continue
        word = entry.word
        languages[entry.lang_code] += bool(word)
        if language not in (entry.lang_code, entry.lang) or not is_expression(word):
            continue
        if entry.pos in _NO_IDIOMS:
            continue
        forms = (form.form for form in entry.forms if _NO_FORMS.isdisjoint(form.tags) and form.form != word)
        # Of the noun and of the verb. Those with other words next to them, "has kicked the bucket", are not used.
        same = (form for form in forms if form.count(" ") == word.count(" "))
        forms_of[word] = (*forms_of.get(word, ()), *same)
        for sense in entry.senses:
            gloss = sense.glosses[-1] if sense.glosses else ""
            is_wanted = all_senses or entry.pos in _IDIOMS or not _IDIOMATIC.isdisjoint([*entry.tags, *sense.tags])
            made = DictionaryEntry(word, gloss, entry.pos, (), source, _WIKTIONARY_LICENCE)
            referred = _REFERENCE.match(gloss)
            if sense.form_of:
                inflected.setdefault(sense.form_of[0].word, []).append(word)
            elif sense.alt_of or referred:
                target = sense.alt_of[0].word if sense.alt_of else referred["target"].strip()
                is_synonym = is_wanted and referred is not None and referred["synonym"]
                references.setdefault(word, (target, made._replace(gloss=target) if is_synonym else None))
            elif is_wanted and gloss:
                senses.setdefault(word, []).append(made)
    if not languages[language] and language not in _NAMES.values():
        found = ", ".join(name for name, _ in languages.most_common(10)) or "none"
        raise UserError(f"has no line of the language {language} (found: {found})", file=path)
    num_lost = 0
    for word, (target, itself) in references.items():
        passed = {word}
        while target not in senses and target in references and target not in passed:
            passed.add(target)
            target, itself = references[target]
        found_senses = senses.get(target, [itself] if itself else [])
        num_lost += not found_senses
        if word not in senses:
            senses[word] = [some._replace(expression=word) for some in found_senses]
    log.info("%s: %d expressions; %d cross-references lead to none", path, len(senses), num_lost)
    return [
        entry._replace(forms=tuple(dict.fromkeys([*forms_of[word], *inflected.get(word, [])])))
        for word, some in senses.items()
        for entry in some
    ]


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
            yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"cannot be unpacked as gzip ({error}): download it again", file=path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", file=path) from None


# ---------------------------------------------------------------- WordNet


def read_wordnet(place: str | None, report: Report) -> list[DictionaryEntry]:
    """WordNet's lemmas of several words with their senses, those that were met most often first.

    It does not mark idioms: names and names of species are left out, everything else is taken.

    Args:
        place: the folder of its files; None = `$WNSEARCHDIR`, or Debian's.
        report: gets lines that cannot be read.

    Raises:
        DataMissingError: if it is in no known place.
        UserError: if the folder has not its files.
    """
    places = [place] if place else [os.environ.get("WNSEARCHDIR"), *_WORDNETS]
    folder = next((path for each in places if each and is_folder(path := expanded(each, "path"))), None)
    if folder is None:
        raise DataMissingError(
            "is not installed: give path=<folder with data.noun, index.noun, …>. Debian has the package "
            "wordnet-base; otherwise unpack https://wordnetcode.princeton.edu/wn3.1.dict.tar.gz or the WNDB "
            "files of https://en-word.net",
            option="from",
            file="wordnet",
        )
    source, licence = "", ""
    senses: dict[str, list[tuple[int, DictionaryEntry]]] = {}
    for part, name in _PARTS.items():
        if not source:
            source, licence = _edition(folder / f"data.{part}")
        wanted: dict[str, list[tuple[str, int]]] = {}  # place in the data → lemmas, with how often they were met
        for number, fields in _records(folder / f"index.{part}"):
            lemma = fields[0].replace("_", " ")
            if not is_expression(lemma):
                continue
            try:
                num_senses, num_pointers = int(fields[2]), int(fields[3])
                num_met, places_of = int(fields[5 + num_pointers]), fields[6 + num_pointers :]
                if len(places_of) != num_senses:
                    raise ValueError("the number of its senses")
            except (ValueError, IndexError) as error:
                report(folder / f"index.{part}", f"line {number}", f"is not as wndb(5) has it: {error}")
                continue
            for offset in places_of:
                wanted.setdefault(offset, []).append((lemma, num_met))
        forms: dict[str, list[str]] = {}
        for _, (form, *lemmas) in _records(folder / f"{part}.exc", optional=True):
            for lemma in lemmas:
                forms.setdefault(lemma.replace("_", " "), []).append(form.replace("_", " "))
        found: dict[tuple[str, str], DictionaryEntry] = {}
        for number, fields in _records(folder / f"data.{part}"):
            if fields[0] not in wanted:
                continue
            try:
                words = [word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
                gloss = " ".join(fields[fields.index("|") + 1 :])
            except ValueError as error:
                report(folder / f"data.{part}", f"line {number}", f"is not as wndb(5) has it: {error}")
                continue
            for word in words:
                if part == "noun" and ("@i" in fields or _is_name(word, fields[1])):
                    continue
                made = DictionaryEntry(word, gloss, name, tuple(forms.get(word.lower(), ())), source, licence)
                found[fields[0], word.lower()] = made
        for offset, lemmas_met in wanted.items():
            for lemma, num_met in lemmas_met:
                if entry := found.get((offset, lemma)):
                    senses.setdefault(lemma, []).append((num_met, entry))
    return [
        entry
        for some in senses.values()
        for _, entry in sorted(some, key=lambda pair: -pair[0])
    ]


def _edition(path: Path) -> tuple[str, str]:
    """What a file of WordNet says of itself: its edition, and the licence of that."""
    head = b" ".join(line for _, line in zip(range(40), _lines(path), strict=False)).decode(errors="replace")
    if "English WordNet" in head or "Open English" in head:
        return "Open English WordNet", "cc-by-4.0"
    edition = re.search(r"WordNet \d\.\d", head)
    return edition[0] if edition else "WordNet", "WordNet License"


def _records(path: Path, *, optional: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file of WordNet, in fields, without the licence at its head."""
    if optional and not is_file(path):
        return
    for number, line in enumerate(_lines(path), 1):
        if not line.startswith(b" ") and line.strip():
            yield number, line.decode(errors="replace").split()


def _is_name(word: str, file: str) -> bool:
    """Whether a noun is a name ("Academy Award"; "Dutch courage" is none) or a species ("Canis lupus")."""
    words = _WORD.findall(word)
    if file in _LIVING and word[0].isupper():
        return True
    return all(part[0].isupper() or part.lower() in _FUNCTION_WORDS for part in words)


# ---------------------------------------------------------------- tables


def read_tables(
    sources: Iterable[Source], columns: Mapping[str, str], licence: str, report: Report
) -> Iterator[DictionaryEntry]:
    """The rows of any tables with expressions and meanings, in their order.

    Args:
        columns: role → the column that has it.
        licence: of rows that state none.
        report: gets rows without an expression or a meaning.
    """
    for source in sources:
        name = source.name + (f"@{source.revision}" if source.revision else "")

        def made(record: Record, name: str = name) -> DictionaryEntry | None:
            facts = {
                role: record.optional_text(role) or ""
                for role in ("part_of_speech", "forms", "source", "licence")
                if role in record.names
            }
            try:
                return DictionaryEntry(
                    record.text("expression").strip(),
                    record.text("meaning"),
                    facts.get("part_of_speech", ""),
                    tuple(form.strip() for form in facts.get("forms", "").split(";") if form.strip()),
                    facts.get("source") or name,
                    facts.get("licence") or licence,
                )
            except FieldError as error:
                report(name, f"row {record.number}", str(error))
                return None

        yield from filter(None, Table(source, [GLOSSARY], columns, "columns").read(made))
