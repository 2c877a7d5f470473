"""Glossaries: tables of expressions and what they mean, as users have them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from train.data.own.forms import ASTITCH_SENSES, GLOSSARY, PIE_SENSES
from train.data.own.sources import Source
from train.data.own.table import Record, Table
from train.encoder.meanings import GlossaryForm, Meanings
from train.expressions import contained, expression_words, find_expression, plain_expression
from train.io.files import fingerprints
from train.io.text import printable

log = logging.getLogger(__name__)

GLOSSARIES = Path(__file__).parent / "glossaries"  # those that come with the project
_MAX_NAMED = 5
# Words of Latin, Greek or Cyrillic letters, with a space or a hyphen between them.
_PLAIN = re.compile(
    r"(?![ -])(?:[ -]?[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03c9\u0400-\u0481])+"
)
_LONG = 50  # words of a meaning; WordNet's have 33 at most
_YES_OR_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_NO_MEANING = ("", "None")  # of a published table: a compound that only means what its words say
_LICENCES = {PIE_SENSES: None, ASTITCH_SENSES: "gpl-3.0"}  # of published tables


@dataclass(frozen=True)
class Entry:
    """One sense of an expression.

    Attributes:
        expression: as a dictionary lists it: "break the ice", "take someone for a ride".
        meaning: what it says in other words.
        literal: whether it is used literally too, or what it then means; None where that is not known.
        language, example, source, licence: facts about it, which change no embedding.
    """

    expression: str
    meaning: str
    literal: bool | str | None = None
    language: str | None = None
    example: str | None = None
    source: str | None = None
    licence: str | None = None


@dataclass(frozen=True)
class Glossary:
    """Expressions with their senses, from one or several files.

    Attributes:
        senses: expression, as its first row spells it → its meanings, in the order of the rows. Spellings
            that differ in case, hyphens or apostrophes alone are one expression.
        entries: the rows, without those that say the same again.
        files: that were read.
        notes: what is worth knowing of the rows, a line each.
    """

    senses: dict[str, list[str]]
    entries: tuple[Entry, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def never_literal(self) -> set[str]:
        """Expressions that are not used literally: a row says so, and none says otherwise."""
        stated: dict[str, list[bool | str]] = {}
        for entry in self.entries:
            if entry.literal is not None:
                stated.setdefault(plain_expression(entry.expression), []).append(entry.literal)
        never = {plain for plain, values in stated.items() if not any(values)}
        return {name for name in self.senses if plain_expression(name) in never}

    def describe(self) -> dict[str, Any]:
        """For records, cards and tables: files by name with their SHA-256, counts, sources, licences and
        how many rows state none."""
        named = {
            f"{field}s": sorted({value for e in self.entries if (value := getattr(e, field))})
            for field in ("source", "licence")
        }
        without_licence = sum(not entry.licence for entry in self.entries)
        return {
            "files": [path.name for path in self.files],
            "sums": {Path(path).name: sum_ for path, sum_ in fingerprints(self.files).items()},
            "expressions": len(self.senses),
            "meanings": len(self.entries),
            **{name: values for name, values in named.items() if values},
            **({"without_licence": without_licence} if without_licence else {}),
        }


def meanings_of(
    glossary: Glossary,
    *,
    form: GlossaryForm | None = None,
    num_senses: int | None = None,
    weight: float | None = None,
    brief: bool = False,
    dropout: float = 0.0,
) -> Meanings:
    """What an encoder reads of a glossary in texts.

    Args:
        brief: of each meaning only its :func:`first_clause`.
    """
    senses, about = glossary.senses, glossary.describe()
    if brief:
        shortened = {name: map(first_clause, meanings) for name, meanings in senses.items()}
        senses = {name: list(dict.fromkeys(meanings)) for name, meanings in shortened.items()}
        about |= {"brief": True}
    return Meanings(
        senses,
        form=form or "beside",
        num_senses=num_senses or 1,
        weight=weight or 0.0,
        dropout=dropout,
        about=about,
    )


def first_clause(meaning: str) -> str:
    """A dictionary's definition up to a semicolon, without remarks in brackets.

    "(psychiatry) a disorder of thought; a more neutral term than mental illness" becomes "a disorder of
    thought". A definition of which nothing would be left stays.
    """
    bare, num_removed = meaning, 1
    while num_removed:  # the innermost brackets each time
        bare, num_removed = re.subn(r"\s*\([^()]*\)", "", bare)
    clauses = (clause.strip() for clause in bare.split(";"))
    return next((clause for clause in clauses if any(c.isalnum() for c in clause)), meaning)


def read_glossary(paths: Sequence[Path]) -> Glossary:
    """Read and check glossary files.

    Args:
        paths: CSV, TSV, JSON lines or Parquet, with the columns `expression` and `meaning`; several rows of
            one expression are its senses. Optional: `literal`, `language`, `example`, `source` and
            `licence`. Other columns are not read. Or the published table of PIE or of
            AStitchInLanguageModels.

    Raises:
        UserError: if a file cannot be read, lacks a column, or has a row without expression or meaning; it
            names file, row and column.
    """
    entries: dict[tuple[str, str], Entry] = {}
    places: dict[tuple[str, str], str] = {}
    notes: list[str] = []
    for path in paths:
        table = Table(Source(str(path), path), [GLOSSARY, *_LICENCES])
        rows = table.read(partial(_entries, table))
        for number, entry in (numbered for of_row in rows for numbered in of_row):
            key = plain_expression(entry.expression), entry.meaning.casefold()
            place = f"{path.name}, row {number}"
            if key in entries:
                if table.form is GLOSSARY:  # PIE has a row for each sentence
                    same = f"{entry.expression!r} has this meaning already ({places[key]})"
                    notes.append(f"{place}: {same}: left out")
                continue
            entries[key], places[key] = entry, place
            if (num_words := len(entry.meaning.split())) > _LONG:
                notes.append(
                    f"{place}: the meaning of {entry.expression!r} has {num_words} words, which may "
                    "make texts longer than the model reads: give a shorter one"
                )
    spellings: dict[str, str] = {}
    senses: dict[str, list[str]] = {}
    first_place: dict[str, str] = {}
    for key, entry in entries.items():
        name = spellings.setdefault(key[0], entry.expression)
        senses.setdefault(name, []).append(entry.meaning)
        first_place.setdefault(name, places[key])
    notes += _notes(senses, first_place)
    return Glossary(senses, tuple(entries.values()), tuple(paths), tuple(notes))


def _entries(table: Table, record: Record) -> list[tuple[int, Entry]]:
    """A row's senses with its number; several in published tables alone. Raises FieldError."""
    expression = _expression(record)
    if table.form is GLOSSARY:
        facts = {role: record.optional_text(role) for role in ("language", "example", "source", "licence")}
        return [(record.number, Entry(expression, _line(record, "meaning"), _literal(record), **facts))]
    cells = [record.values[column] for column in record.names["meaning"]]
    meanings = dict.fromkeys(str(cell or "").strip(" ,") for cell in cells)  # PIE's senses end in commas
    return [
        (
            record.number,
            Entry(expression, _one_line(meaning), source=table.form.name, licence=_LICENCES[table.form]),
        )
        for meaning in meanings
        if meaning not in _NO_MEANING
    ]


def _one_line(text: str) -> str:
    """What is written into a sentence may not break it."""
    return printable(" ".join(text.split()))


def _line(record: Record, role: str) -> str:
    line = _one_line(record.text(role))
    if not any(c.isalnum() for c in line):
        raise record.error(role, f"{line!r} contains no letter or digit")
    return line


def _expression(record: Record) -> str:
    line = _line(record, "expression")
    has_placeholder = any(word.stands_for for word in expression_words(line))
    is_plain = _PLAIN.fullmatch(line) and (line.isascii() or line == line.lower())
    # Plain ones are found: no pattern is compiled for each of 50,000 rows.
    if (has_placeholder or not is_plain) and find_expression(line, line) is None:
        raise record.error(
            "expression",
            f"{line!r} would not be found even where a text has it as it is written: give it without dashes "
            "between spaces, two hyphens in a row or unusual characters",
        )
    return line


def _literal(record: Record) -> bool | str | None:
    """Yes, no, or the literal meaning."""
    if not record.has("literal"):
        return None
    value = record.cell("literal")
    if isinstance(value, bool):
        return value
    text = record.name("literal")
    return _YES_OR_NO.get(text.strip().lower(), _one_line(text))


def _notes(senses: dict[str, list[str]], places: dict[str, str]) -> list[str]:
    notes = []
    several = [name for name, meanings in senses.items() if len(meanings) > 1]
    if several:
        shown = ", ".join(f"{name!r} ({places[name]}): {len(senses[name])}" for name in several[:_MAX_NAMED])
        more = f", … ({len(several)} expressions)" if len(several) > _MAX_NAMED else ""
        notes.append(
            f"several meanings: {shown}{more}; the first is read, or as many as model.glossary_senses="
        )
    for name in (name for name in senses if re.search(r"[()\[\]]", name)):
        notes.append(
            f"{places[name]}: the brackets of {name!r} are searched for literally: write expressions as "
            "people use them, each form in a row of its own"
        )
    for name, others in contained(senses).items():
        notes += [
            f"{places[inner]}: {inner!r} is part of {name!r} ({places[name]}): "
            "where the longer one occurs, that one counts"
            for inner in others
            if len(inner) < len(name)
        ]
    return notes
