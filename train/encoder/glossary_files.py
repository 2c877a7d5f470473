"""Glossaries: tables of expressions and what they mean, as users have them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

from train.encoder.glossary_tables import published_rows
from train.encoder.meanings import GlossaryForm, Meanings
from train.expressions import contained, expression_words, find_expression, plain_expression
from train.io.files import fingerprints
from train.io.tables import read_rows, validated
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


def _line(value: Any) -> Any:
    """One line of text: what is written into a sentence may not break it."""
    return printable(" ".join(value.split())) if isinstance(value, str) else value


Line = Annotated[str, BeforeValidator(_line)]


class Entry(BaseModel):
    """One sense of an expression.

    Attributes:
        expression: as a dictionary lists it: "break the ice", "take someone for a ride".
        meaning: what it says in other words.
        literal: whether it is used literally too, or what it then means; None where that is not known.
        language, example, source, licence: facts about it, which change no embedding.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    expression: Line
    meaning: Line
    literal: bool | str | None = None
    language: str | None = None
    example: str | None = None
    source: str | None = None
    licence: str | None = None

    @field_validator("expression", "meaning")
    @classmethod
    def _holds_words(cls, value: str) -> str:
        if not value:
            raise ValueError("is empty")
        if not any(c.isalnum() for c in value):
            raise ValueError(f"{value!r} holds no letter or digit")
        return value

    @field_validator("expression")
    @classmethod
    def _is_found(cls, value: str) -> str:
        has_placeholder = any(word.stands_for for word in expression_words(value))
        is_plain = _PLAIN.fullmatch(value) and (value.isascii() or value == value.lower())
        # Plain ones are found: no pattern is compiled for each of 50,000 rows.
        if (has_placeholder or not is_plain) and find_expression(value, value) is None:
            raise ValueError(
                f"{value!r} would not be found even where it stands as it is written: give it without dashes "
                "between spaces, two hyphens in a row or unusual characters"
            )
        return value

    @field_validator("literal", mode="before")
    @classmethod
    def _yes_no_or_text(cls, value: Any) -> Any:
        return _YES_OR_NO.get(value.strip().lower(), _line(value)) if isinstance(value, str) else value


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
        said: dict[str, list[bool | str]] = {}
        for entry in self.entries:
            if entry.literal is not None:
                said.setdefault(plain_expression(entry.expression), []).append(entry.literal)
        never = {plain for plain, values in said.items() if not any(values)}
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
            `licence`. Other columns are passed over. Or a :func:`published table
            <train.encoder.glossary_tables.published_rows>`.

    Raises:
        UserError: if a file cannot be read, lacks a column, or has a row without expression or meaning; it
            names file, row and column.
    """
    entries: dict[tuple[str, str], Entry] = {}
    places: dict[tuple[str, str], str] = {}
    spellings: dict[str, str] = {}
    notes: list[str] = []
    for path in paths:
        for number, entry in _rows(path):
            key = plain_expression(entry.expression), entry.meaning.casefold()
            place = f"{path.name}, row {number}"
            if key in entries:
                same = f"{entry.expression!r} has this meaning already ({places[key]})"
                notes.append(f"{place}: {same}: left out")
                continue
            entries[key], places[key] = entry, place
            if (num_words := len(entry.meaning.split())) > _LONG:
                notes.append(
                    f"{place}: the meaning of {entry.expression!r} has {num_words} words, which may "
                    "make texts longer than the model reads: give a shorter one"
                )
            spellings.setdefault(key[0], entry.expression)
    senses: dict[str, list[str]] = {}
    first_place: dict[str, str] = {}
    for (plain, _), entry in entries.items():
        senses.setdefault(spellings[plain], []).append(entry.meaning)
    for (plain, _), place in places.items():
        first_place.setdefault(spellings[plain], place)
    notes += _notes(senses, first_place)
    return Glossary(senses, tuple(entries.values()), tuple(paths), tuple(notes))


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
            f"{places[name]}: the brackets of {name!r} are looked for as they stand: write expressions as "
            "people use them, each form in a row of its own"
        )
    for name, others in contained(senses).items():
        notes += [
            f"{places[inner]}: {inner!r} stands inside {name!r} ({places[name]}): "
            "where the longer one stands, that one counts"
            for inner in others
            if len(inner) < len(name)
        ]
    return notes


def _rows(path: Path) -> Iterator[tuple[int, Entry]]:
    """The rows with their numbers, as people count them in that kind of file; empty cells are left out."""
    published = published_rows(path)
    rows = (
        (number, {column: value for column, value in values.items() if value not in ("", None)})
        for number, values in published or read_rows(path, columns=("expression", "meaning"))
    )
    return validated(rows, Entry, path, named_by="expression")
