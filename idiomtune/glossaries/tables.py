"""Files of expressions with meanings, read and checked."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from idiomtune.config import ModelSettings
from idiomtune.data.dictionaries import Entry, Report
from idiomtune.data.notation import Printed, read_printed, split_forms, split_senses
from idiomtune.data.user.forms import EXPRESSIONS, GLOSSARY, PUBLISHED_GLOSSARIES
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import UserRecord, UserTable
from idiomtune.errors import UserError
from idiomtune.expressions import (
    FUNCTION_WORDS,
    ExpressionIndex,
    expression_words,
    plain_expression,
)
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.io.files import fingerprints, is_file, is_folder, list_names, printable, user_path
from idiomtune.io.tables import Row, has_header, read_rows, rows_of, shown_path

log = logging.getLogger(__name__)

GLOSSARIES = Path(__file__).parent / "shipped"  # those that come with the project

# Words of Latin, Greek or Cyrillic letters, with a space or a hyphen between them.
_PLAIN = re.compile(
    r"(?![ -])(?:[ -]?[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03c9\u0400-\u0481])+"
)
_OWNER = re.compile(r"\b(some)?one's\b")  # without its apostrophe, plain
_SHOWN = 60  # characters of a meaning in a note
_NO_MEANING = ("", "None")  # of a published table: a compound that only means what its words say
_YES_OR_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_NOT_KEPT = ("no", "n", "false", "0")
_FACTS = ("part_of_speech", "language", "source", "licence", "example")


class Glossary(NamedTuple):
    """Expressions with their senses, from one or several files.

    Attributes:
        senses: expression, as its first row spells it → its meanings, in the order of the rows. Spellings
            that differ in case, hyphens or apostrophes alone are one expression.
        entries: the rows, without those that say the same again, each with that spelling.
        files: that were read.
        notes: how rows are read, a line each.
        left_out: what is not read of the rows, a line each.

    What comes with the project, such as `english`, has no such lines.
    """

    senses: dict[str, list[str]]
    entries: tuple[Entry, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def forms(self) -> dict[str, list[str]]:
        """Expression → the inflected forms that its rows give, for those that have any."""
        forms: dict[str, list[str]] = {}
        for entry in self.entries:
            if entry.forms and (name := entry.expression) in self.senses:
                forms[name] = list(dict.fromkeys([*forms.get(name, []), *entry.forms]))
        return forms

    @property
    def never_literal(self) -> set[str]:
        """Expressions without a literal use: some row says so, and no row contradicts it."""
        used = {entry.expression for entry in self.entries if entry.literal}
        unused = {entry.expression for entry in self.entries if entry.literal in (False, "")}
        return (unused - used) & self.senses.keys()

    def log_notes(self) -> None:
        """Log how the files are read, and as warnings what is not read of them."""
        for level, lines in ((logging.WARNING, self.left_out), (logging.INFO, self.notes)):
            for line in lines:
                log.log(level, "glossary: %s", line)

    def describe(self) -> dict[str, Any]:
        """For records, cards and tables: files by name with their SHA-256, counts, sources, licences and
        how many rows state none."""
        sources = sorted({entry.source for entry in self.entries if entry.source})
        licences = sorted({entry.licence for entry in self.entries if entry.licence})
        without_licence = sum(not entry.licence for entry in self.entries)
        facts: dict[str, Any] = {
            "files": [Path(shown_path(path)).name for path in self.files],
            "sums": {Path(path).name: sum_ for path, sum_ in fingerprints(self.files).items()},
            "expressions": len(self.senses),
            "meanings": len(self.entries),
        }
        optional = {"sources": sources, "licences": licences, "without_licence": without_licence}
        return facts | {name: value for name, value in optional.items() if value}

    def meanings(self) -> GlossaryReader:
        """The :class:`GlossaryReader` for an encoder."""
        return GlossaryReader(self.senses, about=self.describe(), forms=self.forms)


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


def named_glossary(model: ModelSettings) -> Glossary | None:
    """The glossary that `model.glossary` names, read and its notes logged once.

    Raises:
        UserError: if a file is not there or damaged.
    """
    if not model.glossary:
        return None
    paths = [glossary_path(name, "model.glossary") for name in model.glossary]
    return _read_once(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=4)
def _read_once(files: tuple[tuple[Path, int], ...]) -> Glossary:
    """Cached for all models of a program, until a file changes."""
    glossary = read_glossary([path for path, _ in files])
    glossary.log_notes()
    return glossary


def glossary_path(name: str, option: str) -> Path:
    """The file of this name, or the project's glossary of this name.

    Raises:
        UserError: if there is neither.
    """
    path = user_path(name, option)
    if is_file(path) or is_folder(path):
        return path
    shipped = {path.stem: path for path in sorted(GLOSSARIES.glob("*.tsv"))}
    if name not in shipped:
        message = f"give one, or a glossary that comes with the project ({', '.join(shipped)})"
        raise UserError(f"there is no such file; {message}", option=option, file=name)
    return shipped[name]


def read_glossary(paths: Sequence[Path], *, needs_meanings: bool = True) -> Glossary:
    """Read and check glossary files.

    Args:
        paths: CSV, TSV, JSON lines, Parquet or XLSX, with the columns `expression` and `meaning`; several
            rows of one expression are its senses. Optional: `literal`, `forms` (a list, or divided by `|`,
            `;` or line breaks), `language`, `example`, `source`, `licence` and `keep` (no or empty: the
            row is left out). Other columns are not read. Or the published table of PIE or of
            AStitchInLanguageModels.
        needs_meanings: whether there must be a column `meaning`.

    Raises:
        UserError: if a file cannot be read, lacks a column, or has a row without an expression; it names
            file, row and column.
    """
    entries: dict[tuple[str, str], Entry] = {}
    spellings: dict[str, str] = {}
    senses: dict[str, list[str]] = {}
    origins: dict[str, str] = {}  # of each expression as it is spelt
    notes: list[str] = []
    left_out: list[str] = []
    later_meanings: dict[str, str] = {}
    read_as: dict[str, Printed] = {}
    shortened: list[str] = []
    for path in paths:
        table = UserTable(path, [*PUBLISHED_GLOSSARIES, GLOSSARY if needs_meanings else EXPRESSIONS])
        file, is_shipped = Path(shown_path(path)).name, path.parent == GLOSSARIES
        collectors = ({}, []) if is_shipped else (read_as, shortened)
        records = table.read(partial(_entries, table, *collectors), _rows_of_terms(path))
        for number, entry in (row for rows in records for row in rows):
            key = plain_expression(entry.expression), entry.meaning.casefold()
            origin = f"{file}, row {number}"
            if key in entries:
                continue
            name = spellings.setdefault(key[0], entry.expression)
            entries[key] = entry._replace(expression=name)
            meanings = senses.setdefault(name, [])
            meanings += filter(None, [entry.meaning])
            origins.setdefault(name, origin)
            if is_shipped:
                continue
            if len(meanings) > 1:
                first = f"{name!r} is {meanings[0][:_SHOWN]!r} ({origins[name]})"
                later_meanings.setdefault(name, f"{first}, not {entry.meaning[:_SHOWN]!r} ({origin})")
        table.log_unread()
    if empty := [repr(name) for name, printed in read_as.items() if not printed.forms]:
        problem = f"no word that an expression could be known by: {list_names(empty, 5)}"
        if not senses:
            raise UserError(problem, file=paths[0])
        left_out.append(f"left out, since there is {problem}")
    changed = [(name, printed) for name, printed in read_as.items() if printed.forms not in ((), (name,))]
    if rewritten := [f"{name!r} as {' and '.join(map(repr, p.forms))}" for name, p in changed]:
        notes.append(f"read without the marks of a dictionary: {list_names(rewritten, 5)}")
    if shortened:
        left_out.append(f"labels and examples left out of the meanings of {list_names(shortened, 5)}")
    if unread := [f"{printed.unread!r} in {name!r}" for name, printed in read_as.items() if printed.unread]:
        notes.append(
            f"signs that are searched for as they stand: {list_names(unread, 5)}: write expressions as "
            "people use them, each form in a separate row"
        )
    if bare := [name for name, meanings in senses.items() if not meanings]:
        note = "without a meaning, so that only a gate uses them, to group texts by form and usage"
        notes.append(f"{note}: {list_names(bare)}")
    if later_meanings:
        first_wins = list_names([*later_meanings.values()], 5)
        left_out.append(f"of several meanings the first is read: {first_wins}")
    return Glossary(senses, tuple(entries.values()), tuple(paths), tuple(notes), tuple(left_out))


def read_leniently(source: Source, columns: Mapping[str, str], report: Report) -> Iterator[Entry]:
    """The rows of a table, in their order; those that cannot be read are left out.

    Args:
        columns: role → the column that has it.
        report: gets those rows.
    """
    table, read_as = UserTable(source, [GLOSSARY], columns, "columns"), dict[str, Printed]()

    def entries_of(record: UserRecord) -> list[tuple[int, Entry]]:
        try:
            return _entries(table, read_as, [], record)
        except ValueError as error:  # FieldError; too many placeholders
            report(source.name, f"row {record.number}", str(error))
            return []

    for rows in table.read(entries_of, None if source.path is None else _rows_of_terms(source.path)):
        yield from (entry for _, entry in rows)
    table.log_unread()
    if empty := [repr(name) for name, printed in read_as.items() if not printed.forms]:
        log.warning("%s: left out, without a content word: %s", source.name, list_names(empty, 5))


def _entries(
    table: UserTable, read_as: dict[str, Printed], shortened: list[str], record: UserRecord
) -> list[tuple[int, Entry]]:
    """A row's forms and senses with its number. Raises FieldError.

    Args:
        read_as: gets what is read in another way than it is printed, or not understood.
        shortened: gets expressions whose meanings are read without labels or examples.
    """
    expression = _one_line(record.text("expression"))
    printed = read_printed(record.text("expression"))
    printed = printed._replace(forms=tuple(filter(has_content, map(_one_line, printed.forms))))
    if printed.forms != (expression,) or printed.unread:
        read_as[expression] = printed
    if others := [form for form in printed.forms if not is_findable(form)]:
        raise record.error(
            "expression",
            f"{others[0]!r} would not be found even in a text that has it exactly as written: write it "
            "without dashes between spaces, two hyphens in a row or unusual characters",
        )
    if table.form not in PUBLISHED_GLOSSARIES:
        if not _is_kept(record):
            return []
        facts = {role: _one_line(record.text(role)) if record.has(role) else None for role in _FACTS}
        meaning = record.optional_text("meaning") or ""
        if meaning and not any(map(str.isalnum, meaning)):
            raise record.error("meaning", f"{_one_line(meaning)!r} contains no letter or digit")
        senses = [_one_line(sense) for sense in split_senses(meaning)]
        if sum(map(str.isalpha, meaning)) > sum(map(str.isalpha, "".join(senses))):
            shortened.append(expression)
        literal, forms = _read_literal(record), _read_forms(record)
        return [
            (record.number, Entry(form, sense, forms=forms, literal=literal, **facts))
            for form in printed.forms
            for sense in senses
        ]
    cells = [record.values[column] for column in record.names["meaning"]]
    senses = list(dict.fromkeys(str(cell or "").strip(" ,") for cell in cells))  # PIE's end in commas
    licence = PUBLISHED_GLOSSARIES[table.form]
    return [
        (record.number, Entry(form, _one_line(meaning), source=table.form.name, licence=licence))
        for form in printed.forms
        for meaning in senses
        if meaning not in _NO_MEANING
    ]


def _rows_of_terms(path: Path) -> Iterator[Row] | None:
    """The rows of a JSON file `{"break the ice": "make people relax", …}`; None for any other file."""
    rows = [] if has_header(path) else list(islice(read_rows(path), 2))
    if len(rows) != 1 or any(GLOSSARY.role_of(column) for column in rows[0].values):
        return None
    return map(Row, count(1), rows_of(rows[0].values, str(path)))


def _is_kept(record: UserRecord) -> bool:
    """Whether a row of a glossary counts: the column `keep`, if there is one, does not say no."""
    return not record.names.get("keep") or (record.optional_text("keep") or "no").casefold() not in _NOT_KEPT


def _read_forms(record: UserRecord) -> tuple[str, ...]:
    """The inflected forms in a row of a glossary. Raises FieldError."""
    cells = record.list_in("forms") if record.has("forms") else []
    if not all(isinstance(cell, str) for cell in cells):
        raise record.error("forms", f"must be texts, got {cells!r}")
    return tuple(form for cell in cells for form in split_forms(cell))


def _read_literal(record: UserRecord) -> bool | str | None:
    """What a row of a glossary says of literal use: yes, no, the literal meaning, or nothing."""
    text = record.optional_name("literal")
    return None if text is None else _YES_OR_NO.get(text.strip().lower(), " ".join(text.split()))


def is_findable(expression: str) -> bool:
    """Whether an expression is found in a text that has it as it is listed.

    Raises:
        ValueError: if it has more placeholders than are looked for.
    """
    # No pattern is compiled for each of 50,000 rows: plain ones are found, placeholders in them too.
    if _PLAIN.fullmatch(bare := _OWNER.sub("one", expression)) and (bare.isascii() or bare == bare.lower()):
        expression_words(expression)
        return True
    return bool(ExpressionIndex([expression]).find(expression))


def _one_line(text: str) -> str:
    """The text on one line."""
    return printable(" ".join(text.split()))


def has_content(expression: str) -> bool:
    """Whether an expression has a letter or digit, and is more than a function word."""
    return any(c.isalnum() for c in expression) and plain_expression(expression) not in FUNCTION_WORDS
