"""Glossaries: files of expressions with meanings, and how a model reads them in texts.

It reads `broke the ice (made people relax)`, or the meaning instead. From the expressions that it is trained
on the model learns to use what is in the brackets, and it does so for others, which cost a line in the
glossary and no step. A model without such training takes an added meaning for more words of the sentence: it
uses one that replaces the expression.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.config import ModelSettings
from idiomtune.data.dictionaries import is_kept, read_forms, read_literal, rows_of_terms
from idiomtune.data.notation import Printed, read_printed, split_senses
from idiomtune.data.user.forms import EXPRESSIONS, GLOSSARY, PUBLISHED_GLOSSARIES
from idiomtune.data.user.table import UserRecord, UserTable
from idiomtune.errors import UserError
from idiomtune.expressions import (
    FUNCTION_WORDS,
    Edit,
    ExpressionIndex,
    Span,
    expression_words,
    find_nested,
    find_with_adjectives,
    move_span,
    plain_expression,
    rewrite,
)
from idiomtune.io.files import fingerprints, is_file, is_folder, list_names, printable, user_path, write_json
from idiomtune.io.tables import shown_path

log = logging.getLogger(__name__)

FILE = "glossary.json"
GLOSSARIES = Path(__file__).parent / "glossaries"  # those that come with the project
_FORMAT = 3
_FIELDS = ("form", "about", "senses")
_OPTIONAL = {"gate", "forms"}
_MAX_CACHED_TEXTS = 200_000

GlossaryForm = Literal["beside", "in_place"]


class UsageClassifier(NamedTuple):
    """A linear classifier of usage: how idiomatic an expression is in a text, read without meanings.

    Attributes:
        direction: a number for each feature of the text.
        bias: what is added to the products.
        layers: the hidden layers that give the features (:func:`idiomtune.encoder.forward.usage_features`).
        bare: a number for each feature of the expression itself, read as a text of its own.
        seen: the expressions that it was fitted to.
        mean: the mean embedding, of a model whose texts all have similar ones: what is mixed is the rest.
    """

    direction: list[float]
    bias: float
    layers: tuple[int, ...]
    bare: tuple[float, ...]
    seen: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()

    def terms(self, features: Tensor) -> Tensor:
        """(N, 2): the logit's terms for a text with an expression, and for the expression by itself.

        Args:
            features: (N, F).
        """
        units = normalize(features.float(), dim=1)
        own = of_expression(units, self.layers) @ units.new_tensor(self.bare)
        return torch.stack([units @ units.new_tensor(self.direction), own], dim=1)

    def usage(self, terms: Tensor, expression_terms: Tensor) -> Tensor:
        """(N,), from 0 = literal to 1 = idiomatic.

        Args:
            terms: (N, 2), of texts.
            expression_terms: (N, 2), of their expressions.
        """
        return torch.sigmoid(terms[:, 0] + expression_terms[:, 1] + self.bias)


def of_expression(features: Tensor, layers: Sequence[int]) -> Tensor:
    """(N, L · H): the part of (N, 3 · L · H) features that describes the expression itself."""
    return features.view(len(features), len(layers), 3, -1)[:, :, 1].flatten(1)


@dataclass(frozen=True)
class Meanings:
    """A glossary as a model reads it: meanings after expressions, or instead of them.

    Attributes:
        senses: expression → its meanings, of which the first is read; none for a name in a list: its text is
            unchanged, but a gate keeps its usages apart.
        form: `beside` = after the expression, in brackets; `in_place` = instead of it.
        dropout: share of the texts of a training step that are read without.
        about: what is known of the glossary (files, sources, licences), for records.
        gate: weighs meanings by usage (:mod:`idiomtune.encoder.usage_gate`), if there is one.
        forms: expression → its inflected forms, where the glossary gives them.
    """

    senses: dict[str, list[str]]
    form: GlossaryForm = "beside"
    dropout: float = 0.0
    about: dict[str, Any] = Field(default_factory=dict)
    gate: UsageClassifier | None = None
    forms: dict[str, list[str]] = Field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: without caches."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def override(self, **options: Any) -> Meanings:
        """A copy with other options; None keeps an option."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})

    def meaning(self, expression: str) -> str:
        """The meaning of an expression; "" for a name without a meaning."""
        return next(iter(self.senses[expression]), "")

    def inserted_text(self, expression: str) -> str:
        """The text that an expression gets: ` (made people relax)` after it, or the meaning instead of it."""
        meaning = self.meaning(expression)
        return meaning if self.form == "in_place" else f" ({meaning})"

    def insert(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with meanings, and the span moved to its new offsets.

        A span includes the meaning right after it: pooled together it
        found half as many paraphrases again as without (docs/results/knowledge.md). Of an expression that its
        meaning replaces, a span that holds any part has the whole meaning.
        """
        new, edits = self._rewritten(text)
        return new, None if span is None else move_span(span, edits)

    @cached_property
    def _rewritten(self) -> Callable[[str], tuple[str, list[Edit]]]:
        return lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._rewrite)

    def _rewrite(self, text: str) -> tuple[str, list[Edit]]:
        matches = [match for match in self.find(text) if self.senses[match[2]]]
        if self.form == "beside":
            matches = [(end, end, name) for _, end, name in matches]
        return rewrite(text, [(start, end, self.inserted_text(name)) for start, end, name in matches])

    def replace_expressions(self, text: str) -> tuple[str, list[tuple[Span, Span, str]]]:
        """The text with meanings instead of expressions, and each match's span before and after."""
        matches = self.find(text)
        meant = [(start, end, self.meaning(name) or text[start:end]) for start, end, name in matches]
        new, edits = rewrite(text, meant)
        return new, [(edit[:2], edit[2:], match[2]) for edit, match in zip(edits, matches, strict=True)]

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """(start, end, expression) of those in a text."""
        return self._index.find(text)

    def find_all(self, text: str) -> list[tuple[int, int, str]]:
        """As :meth:`find`, and those with an adjective put into them."""
        return sorted({*self.find(text), *find_with_adjectives(self._index, text)})

    @cached_property
    def _index(self) -> ExpressionIndex:
        forms = tuple((name, *forms_of) for name, forms_of in self.forms.items() if name in self.senses)
        return _index_of(tuple(self.senses), forms)

    def log_coverage(self, texts: Iterable[str], title: str) -> tuple[set[str], int]:
        """The occurring expressions and the number of texts with any; logged, as a warning if there are none.

        Args:
            title: of the texts, as `training`.
        """
        expressions = [{name for *_, name in self.find(text)} for text in dict.fromkeys(texts)]
        names, num_texts = set[str]().union(*expressions), sum(map(bool, expressions))
        message = "glossary: %d of %d expressions occur in %d texts of %s"
        level = logging.INFO if num_texts else logging.WARNING
        log.log(level, message, len(names), len(self.senses), num_texts, title)
        return names, num_texts

    def save(self, folder: str | Path) -> None:
        """Write `glossary.json`: what :func:`saved_meanings` reads."""
        content = {"format": _FORMAT} | {name: getattr(self, name) for name in _FIELDS}
        optional = {"gate": self.gate and self.gate._asdict(), "forms": self.forms}
        write_json(Path(folder) / FILE, content | {name: value for name, value in optional.items() if value})


@lru_cache(maxsize=4)
def _index_of(expressions: tuple[str, ...], forms: tuple[tuple[str, ...], ...]) -> ExpressionIndex:
    """Cached: one index for equal expressions."""
    return ExpressionIndex(expressions, {name: forms_of for name, *forms_of in forms})


def saved_meanings(content: dict[str, Any], hidden: int) -> Meanings:
    """The meanings that a checkpoint was saved with.

    Args:
        content: of its file.
        hidden: dimensions of the model's hidden states.

    Raises:
        ValueError, KeyError, TypeError: if the file is damaged, or its gate is for another model.
    """
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, expected {_FORMAT}")
    meanings = Meanings(**{name: content[name] for name in [*_FIELDS, *(_OPTIONAL & content.keys())]})
    meanings.find("")  # refuses expressions without a letter
    if (gate := meanings.gate) is not None:
        sizes, width = (len(gate.direction), len(gate.bare)), len(gate.layers) * hidden
        if sizes != (3 * width, width) or len(gate.mean) not in (0, hidden):
            raise ValueError(f"the gate has {sizes} numbers, this model's needs {(3 * width, width)}")
    return meanings


# ---------------------------------------------------------------- files

# Words of Latin, Greek or Cyrillic letters, with a space or a hyphen between them.
_PLAIN = re.compile(
    r"(?![ -])(?:[ -]?[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03c9\u0400-\u0481])+"
)
_OWNER = re.compile(r"\b(some)?one's\b")  # without its apostrophe, plain
_SHOWN = 60  # characters of a meaning in a note
_LONG = 50  # words of a meaning; WordNet's have 33 at most
_NO_MEANING = ("", "None")  # of a published table: a compound that only means what its words say
_FACTS = ("source", "licence")


class Entry(NamedTuple):
    """One sense of an expression.

    Attributes:
        expression: as a dictionary lists it: "break the ice", "take someone for a ride".
        meaning: what it says in other words; "" where that is not known.
        literal: whether it is used literally too, or what it then means; None where that is not known.
        forms: its inflected forms, from a dictionary; without any, rules inflect its words.
        source, licence: facts about it, which change no embedding.
    """

    expression: str
    meaning: str
    literal: bool | str | None = None
    forms: tuple[str, ...] = ()
    source: str | None = None
    licence: str | None = None


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
        for name, *_, of_entry, _, _ in self.entries:
            if of_entry and name in self.senses:
                forms[name] = list(dict.fromkeys([*forms.get(name, []), *of_entry]))
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

    def meanings(self) -> Meanings:
        """The :class:`Meanings` for an encoder."""
        return Meanings(self.senses, about=self.describe(), forms=self.forms)


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
    origins: dict[str | tuple[str, str], str] = {}  # of each expression as it is spelt, and of each row
    notes: list[str] = []
    left_out: list[str] = []
    later_meanings: dict[str, str] = {}
    from_user = set[str]()  # expressions in files that do not come with the project
    read_as: dict[str, Printed] = {}
    shortened: list[str] = []
    for path in paths:
        table = UserTable(path, [*PUBLISHED_GLOSSARIES, GLOSSARY if needs_meanings else EXPRESSIONS])
        file, is_shipped = Path(shown_path(path)).name, path.parent == GLOSSARIES
        collectors = ({}, []) if is_shipped else (read_as, shortened)
        records = table.read(partial(_entries, table, *collectors), rows_of_terms(path))
        for number, entry in (row for rows in records for row in rows):
            key = plain_expression(entry.expression), entry.meaning.casefold()
            origin = f"{file}, row {number}"
            if key in entries:
                if (
                    not is_shipped and table.form not in PUBLISHED_GLOSSARIES
                ):  # PIE has a row for each sentence
                    same = f"{entry.expression!r} has this meaning already ({origins[key]})"
                    notes.append(f"{origin}: {same}: left out")
                continue
            name = spellings.setdefault(key[0], entry.expression)
            entries[key], origins[key] = entry._replace(expression=name), origin
            meanings = senses.setdefault(name, [])
            meanings += filter(None, [entry.meaning])
            origins.setdefault(name, origin)
            if is_shipped:
                continue
            from_user.add(name)
            if len(meanings) > 1:
                first = f"{name!r} is {meanings[0][:_SHOWN]!r} ({origins[name]})"
                later_meanings.setdefault(name, f"{first}, not {entry.meaning[:_SHOWN]!r} ({origin})")
            if (num_words := len(entry.meaning.split())) > _LONG:
                note = f"{origin}: the meaning of {entry.expression!r} has {num_words} words"
                notes.append(f"{note}, which may make texts longer than the model reads: give a shorter one")
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
    nested = [
        f"{name!r} ({origins[name]}) hides {inner!r} ({origins[inner]})"
        for name, others in find_nested(senses).items()
        for inner in others
        if len(inner) < len(name) and from_user & {inner, name}
    ]
    if nested:
        notes.append(f"where the longer of two occurs, it counts: {list_names(nested, 5)}")
    return Glossary(senses, tuple(entries.values()), tuple(paths), tuple(notes), tuple(left_out))


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
        if not is_kept(record):
            return []
        facts = {role: record.optional_text(role) for role in _FACTS}
        meaning = record.optional_text("meaning") or ""
        if meaning and not any(map(str.isalnum, meaning)):
            raise record.error("meaning", f"{_one_line(meaning)!r} contains no letter or digit")
        senses = [_one_line(sense) for sense in split_senses(meaning)]
        if sum(map(str.isalpha, meaning)) > sum(map(str.isalpha, "".join(senses))):
            shortened.append(expression)
        literal, forms = read_literal(record), read_forms(record)
        return [
            (record.number, Entry(form, sense, literal, forms, **facts))
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
