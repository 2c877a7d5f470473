"""From a row of a user's table to an example for training; columns without a role are asked about."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from idiomtune.data.user.columns import read_condition, value_key
from idiomtune.data.user.forms import NAMES, SPAN_OF, TRAINED, is_annotation
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import Span, UserRecord, UserTable, is_empty
from idiomtune.errors import UserError
from idiomtune.io.files import one_line
from idiomtune.io.tables import Row, normalise
from idiomtune.plugins.options import as_list

_CONDITIONS = ("keep", "positive_if")
_FEW = 20  # different values, of which a column may say what its rows are
_LONG = 40  # characters of a value that may be a label
_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"
# What may be typed for a column that is asked about.
_MEANS = {
    "keep": "train only on rows like these",
    "positive_if": "the texts of other rows are hard negatives of their anchor",
    "score": "how alike the two texts are",
    "meaning": "the meaning of the group",
    "label": "a class of sentences, whatever their group",
    "negative": "another negative",
    "ignore": "it is left out, and all rows are trained on",
}
# Form → the roles that a column without one may have.
_OPEN_ROLES = {
    **{"pairs": ("score", "negative", "meaning", "positive_if")},
    **{"scored": ("positive_if",), "sentences": ("meaning", "label")},
}
_RESERVED = re.compile(r"""[|"'=,{}]""")  # in a condition, or around it on a command line
# Needs no quotation marks.
_QUOTED_WORD = re.compile(r'"(?!(?:null|true|false|nan|inf)")([A-Za-z]\w*)"', re.ASCII)

ColumnMapping = Mapping[str, str | list[str] | None]


class Sentence(NamedTuple):
    """A text with its span, group and meaning.

    Attributes:
        span: character offsets [start, end) in it.
        group: such as its expression.
        meaning: which meaning of the group it has.
    """

    text: str
    span: Span | None = None
    group: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class UserExample:
    """A row.

    Attributes:
        number: of the row in its file; a header is row 1.
        sentences: the anchor, its positives, its negatives; the two of a scored pair; or one sentence.
        num_positives: how many of the sentences are positives.
        label: of a labelled sentence.
        usage: the kind of a sentence, of which each batch gets its share.
        score: of a scored pair.
    """

    number: int
    sentences: tuple[Sentence, ...]
    num_positives: int = 0
    label: str | None = None
    usage: str | None = None
    score: float | None = None
    weight: float = 1.0
    instruction: str | None = None


class ExampleTable(UserTable):
    """A table to train on.

    Args:
        mapping: role → column, as the user says, or a list of columns; `keep` and `positive_if` → condition
            of a row: other rows are left out, or have negatives of their anchor as positives, and the rows
            are pairs; `ignore` → columns that are left out, and so is a column → None. A column in `keep`
            has its role all the same; one in `positive_if` has none by its name.
        form: the name of the form, as the user says; None = by the columns.
        spellings: key of a name → the name as it is first spelled.

    Attributes:
        named: columns that the user names without a role.
        negatives: after reading, the texts of rows for which `positive_if` does not hold, by anchor.
    """

    def __init__(
        self,
        source: Source,
        mapping: ColumnMapping | None = None,
        form: str | None = None,
        spellings: dict[str, str] | None = None,
    ) -> None:
        self._mapping = mapping or {}
        self._conditions = {
            role: read_condition(str(text), f"{_OPTION}: {role}")
            for role in _CONDITIONS
            if (text := self._mapping.get(role))
        }
        chosen: dict[str, str] = {}
        ignored = list[str]()
        for role, columns in self._mapping.items():
            if role == "ignore" or columns is None:
                ignored += [role] if columns is None else as_list(columns)
            elif isinstance(columns, list):
                chosen |= {f"{role}_{number}": column for number, column in enumerate(columns, 1)}
            elif role not in _CONDITIONS:
                chosen[role] = columns
        form = "pairs" if form is None and "positive_if" in self._conditions else form
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], chosen, _OPTION)
        if doubled := {*ignored}.intersection(chosen.values()):
            raise UserError(f"{_OPTION}: the column {min(doubled)!r} has a role, and is left out: choose one")
        self.named = {*ignored, *(column for column, _ in self._conditions.values())}
        judging = self._conditions.get("positive_if", ("",))[:1]
        self.left_out = {*ignored, *judging} - {*chosen.values()}
        self.negatives: dict[str, list[str]] = {}
        self._counts = Counter[str]()  # rows, and those that meet each condition
        self._spellings = {} if spellings is None else spellings

    def examples(self, rows: Iterable[Row] | None = None) -> Iterator[UserExample]:
        """The examples of the rows that meet the user's conditions, as :meth:`read`.

        Args:
            rows: in place of the source's.

        Raises:
            UserError: as :meth:`read`; after the last row, if columns may say which rows are to be trained.
        """
        rows = list(self.source.rows() if rows is None else rows)
        self.columns = list(dict.fromkeys(column for row in rows for column in row.values))
        read = [row for row in rows if self._holds("keep", row.values)]
        self._counts.update(rows=len(rows), keep=len(read))

        def judge(record: UserRecord) -> tuple[bool, UserExample]:
            return self._holds("positive_if", record.values), self._example(record)

        try:
            for is_right, example in self.read(judge, read) if read or not rows else ():
                if is_right:
                    self._counts["positive_if"] += 1
                    yield example
                else:
                    texts = [sentence.text for sentence in example.sentences[1 : 1 + example.num_positives]]
                    self.negatives.setdefault(example.sentences[0].text, []).extend(texts)
        except UserError:
            self._ask_about_columns(rows)  # rows with problems may be those to leave out
            raise
        if not self._counts["positive_if"]:
            conditions = " and ".join(str(self._mapping[role]) for role in self._conditions)
            raise UserError(f"{_OPTION}: no row has {conditions}", file=self.source.name)
        self._ask_about_columns(rows)

    def _holds(self, role: str, values: Mapping[str, Any]) -> bool:
        """Whether a row meets a condition, as it does without one, or in a table without its column."""
        column, holds = self._conditions.get(role, ("", None))
        return holds is None or column not in self.columns or holds(values.get(column))

    def _ask_about_columns(self, rows: Sequence[Row]) -> None:
        """Raises UserError if columns may say which rows to train on, or as what, and nobody said how.

        They have no role, and few values or the name of a role that is not read.
        """
        settled = {column for columns in self.names.values() for column in columns} | self.named
        questions: dict[str, str] = {}  # column → its values, and what may be typed
        for column in self.columns if self.names else ():
            values = (row.values.get(column) for row in rows)
            counts = Counter("" if is_empty(value) else value_key(value) for value in values)
            are_few = 1 < len(counts) <= min(_FEW, max(2, len(rows) / 2)) < len(rows)
            are_few &= all(len(key) <= _LONG for key in counts)  # no texts
            is_named = len(counts) > 1 and normalise(column) in NAMES
            if (are_few or is_named) and column not in settled and not is_annotation(column):
                shown = ", ".join(
                    f"{one_line(key[:_LONG]) or 'empty'} ({num})" for key, num in counts.most_common(6)
                )
                value = next((key for key, _ in counts.most_common() if key), "")
                ways = " or ".join(map(_written, self._ways(column, value)))
                questions[column] = f"{column} with {shown}{', …' * (len(counts) > 6)}: {ways}"
        if questions:
            means = "; ".join(f"{role}: {means}" for role, means in _MEANS.items())
            mapping = {role: c for role, c in self._mapping.items() if c is not None and role != "ignore"}
            mapping["ignore"] = [*(self.named & self.left_out), *questions]
            option = shlex.quote(f"{_OPTION}={_written(mapping)}")
            problem = "columns without a role may say which rows are right, or what they are:"
            lines = "\n  - ".join([problem, *questions.values()])
            message = f"{lines}\nSay how each is read ({means}); all of them left out is {option}"
            raise UserError(message, file=self.source.name, field=next(iter(questions)))

    def _ways(self, column: str, value: str) -> Iterator[Mapping[str, str]]:
        """What the user may type for a column that has this value."""
        condition = f"{column}={'<value>' if _RESERVED.search(value) else value}"
        for role in (*_OPEN_ROLES[self.form.name], "keep", "ignore"):
            if role not in self.names and (role != "meaning" or "group" in self.names):
                yield {role: condition if role in _CONDITIONS else column}

    def about(self) -> str:
        """Roles of columns, and ignored columns; after reading."""
        about = ", ".join(
            role if columns == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in self.names.items()
        )
        for role in self._conditions:
            about += f"; {role} {self._mapping[role]}: {self._counts[role]} of {self._counts['rows']} rows"
        used = {column for columns in self.names.values() for column in columns}
        if ignored := [column for column in self.columns if column and column not in used]:
            about += f"; left out: {', '.join(ignored)}"
        form = {"scored": "scored pairs"}.get(self.form.name, self.form.name)
        return f"{self.source.name}: {form} ({about})"

    def _example(self, record: UserRecord) -> UserExample:
        """A row. Raises FieldError."""
        form = self.form.name
        group, usage = self._name(record, "group"), self._name(record, "usage")
        has_meaning = "meaning" in record.names or group is None or form != "sentences"
        meaning = self._name(record, "meaning") if has_meaning else usage
        texts = {
            role: [
                self._sentence(entry, group, None if role == "negative" else meaning)
                for entry in record.entries(role, several=role in self.form.several)
            ]
            for role in SPAN_OF
            if role in self.form.roles
        }
        positives, num_positives = texts.get("positive", []), int(form == "scored")
        if form == "pairs":
            num_positives = len(positives)
            if not positives:
                raise record.error("positive", "is empty")
            for text in texts["negative"]:
                if text.text in (p.text for p in positives) or text[:2] == texts["anchor"][0][:2]:
                    problem = f"{text.text!r} is the anchor or a positive of the row too"
                    raise record.error("negative", problem)
        elif form == "sentences":
            # The first row has the column of the form; in JSON lines others may have labels that it lacks.
            record.cell("label" if "label" in record.names else self.form.required[-1])
        weight = record.number_in("weight") if record.has("weight") else 1.0
        if not 0 <= weight <= _MAX_WEIGHT:
            raise record.error("weight", f"must be from 0 to {_MAX_WEIGHT:g}, got {weight:g}")
        return UserExample(
            record.number,
            tuple(chain.from_iterable(texts.values())),
            num_positives,
            label=self._name(record, "label"),
            usage=usage,
            score=record.number_in("score") if form == "scored" else None,
            weight=weight,
            instruction=record.optional_text("instruction"),
        )

    def _sentence(self, entry: UserRecord, group: str | None, meaning: str | None = None) -> Sentence:
        """A text of a row; an object's own labels take precedence over those of its row."""
        text, span = entry.marked_text()
        group = self._name(entry, "group") or group
        return Sentence(text, span, group, self._name(entry, "meaning") or meaning)

    def _name(self, record: UserRecord, role: str) -> str | None:
        """The first name that differs in no more than case, blanks and the like."""
        name = record.optional_name(role)
        return None if name is None else self._spellings.setdefault(value_key(name), name.strip())


def _written(mapping: ColumnMapping) -> str:
    """A mapping as it is typed: `{keep: "answer=accept", ignore: [source, page]}`."""
    texts = (f"{role}: {json.dumps(text, ensure_ascii=False)}" for role, text in mapping.items())
    return "{" + _QUOTED_WORD.sub(r"\1", ", ".join(texts)) + "}"
