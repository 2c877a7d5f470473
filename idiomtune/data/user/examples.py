"""From a row of a user's table to an example for training; columns without a role are asked about."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from idiomtune.data.user.columns import read_condition, value_key
from idiomtune.data.user.forms import LABELS, NAMES, TRAINED, is_annotation
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import Span, UserRecord, UserTable, is_empty
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, one_line
from idiomtune.io.tables import Row, normalise
from idiomtune.plugins.options import as_list

log = logging.getLogger(__name__)

_CONDITIONS = ("keep", "positive_if")
_FEW = 20  # different values, of which a column may say what its rows are
_LONG = 40  # characters of a value that may be a label
_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"
_RESERVED = re.compile(r"""[|&"'=,{}]""")  # in a condition, or around it on a command line
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

ColumnMapping = Mapping[str, str | list[str] | None]
# Needs no quotation marks.
_QUOTED_WORD = re.compile(r'"(?!(?:null|true|false|nan|inf)")([A-Za-z]\w*)"', re.ASCII)


@dataclass(frozen=True, slots=True)
class Sentence:
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
        spellings: name → the first name that differs from it only in case, blanks and the like.

    Attributes:
        named: columns that the user names without a role.
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
        self._ignored = list[str]()
        for role, columns in self._mapping.items():
            if role == "ignore" or columns is None:
                self._ignored += [role] if columns is None else as_list(columns)
            elif isinstance(columns, list):
                chosen |= {f"{role}_{number}": column for number, column in enumerate(columns, 1)}
            elif role not in _CONDITIONS:
                chosen[role] = columns
        form = "pairs" if form is None and "positive_if" in self._conditions else form
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], chosen, _OPTION)
        if doubled := {*self._ignored}.intersection(chosen.values()):
            raise UserError(f"{_OPTION}: the column {min(doubled)!r} has a role, and is left out: choose one")
        judging = {column for column, _ in self._conditions.get("positive_if", ())}
        self.left_out = {*self._ignored, *judging.difference(chosen.values())}
        self.named = {*self._ignored, *(column for column, _ in chain(*self._conditions.values()))}
        self._rows, self._num_kept = list[Row](), 0
        self._echoes: list[str] = []  # rows with negatives that equal their anchor
        self._spellings, self._respelled = {} if spellings is None else spellings, list[str]()

    def examples(self, rows: Iterable[Row] | None = None) -> Iterator[UserExample]:
        """The examples of the rows that meet the user's conditions, as :meth:`read`.

        Raises:
            UserError: as :meth:`read`; after the last row, if columns may say which rows are to be trained.
        """
        try:
            yield from self.read(self._example, self._select(rows))
        except UserError:
            self._ask_about_columns()  # rows with problems may be those to leave out
            raise
        self._ask_about_columns()
        if self._respelled:
            names = list_names(self._respelled, 3)
            log.warning("%s: names that are read as equal: %s", self.source.name, names)

    def negatives(self) -> dict[str, list[str]]:
        """The texts of rows for which `positive_if` does not hold: anchor → its negatives."""
        negatives: dict[str, list[str]] = {}
        if "positive_if" in self._conditions:
            table = ExampleTable(self.source, self._mapping, "pairs", self._spellings)
            for example in table.read(table._example, table._select(are_right=False), may_be_empty=True):
                texts = [sentence.text for sentence in example.sentences[1 : 1 + example.num_positives]]
                negatives.setdefault(example.sentences[0].text, []).extend(texts)
        return negatives

    def _select(self, rows: Iterable[Row] | None = None, *, are_right: bool = True) -> list[Row]:
        """The rows for which the user's conditions hold; those on columns that the table lacks hold."""
        self._rows = list(self.source.rows() if rows is None else rows)
        self.columns = list(dict.fromkeys(column for row in self._rows for column in row.values))
        chosen = []
        for row in self._rows:
            holds = {
                role: all(test(row.values.get(column)) for column, test in tests if column in self.columns)
                for role, tests in self._conditions.items()
            }
            if holds.get("keep", True) and holds.get("positive_if", True) == are_right:
                chosen.append(row)
        self._num_kept = len(chosen)
        if are_right and self._rows and not chosen:
            conditions_ = " and ".join(str(self._mapping[role]) for role in self._conditions)
            raise UserError(f"{_OPTION}: no row has {conditions_}", file=self.source.name)
        return chosen

    def _ask_about_columns(self) -> None:
        """Raises UserError if columns may say which rows to train on, or as what, and nobody said how.

        They have few values, or the name of a role that is not read, and no role; or they are called label,
        beside a group or two sentences.
        """
        roles = {column: role for role, columns in self.names.items() for column in columns}
        questions: dict[str, str] = {}  # column → its values, and what may be typed
        for column in self.columns if roles else ():
            role, num_rows = roles.get(column), len(self._rows)
            values = (row.values.get(column) for row in self._rows)
            counts = Counter("" if is_empty(value) else value_key(value) for value in values)
            are_few = 1 < len(counts) <= min(_FEW, max(2, num_rows / 2)) < num_rows
            are_few &= all(len(key) <= _LONG for key in counts)  # no texts
            if role is None:
                is_settled = column in self.named | self.left_out or is_annotation(column)
                is_asked = not is_settled and (are_few or (len(counts) > 1 and normalise(column) in NAMES))
            else:
                is_doubtful = role == "score" or (role == "label" and "group" in roles.values())
                is_asked = are_few and is_doubtful and normalise(column) in LABELS
            if is_asked and column not in self._chosen.values():
                ways = " or ".join(f"{{{way}}}" for way in self._ways(column, role, counts))
                shown = (f"{one_line(key[:_LONG]) or 'empty'} ({num})" for key, num in counts.most_common(6))
                questions[column] = f"{column} with {', '.join(shown)}{', …' * (len(counts) > 6)}: {ways}"
        if questions:
            problem = "columns without a role may say which rows are right, or what they are:"
            if absent := sorted(self.named - {*self.columns}):
                problem = f"there is no column {absent[0]!r}, which {_OPTION} names; {problem}"
            means = "; ".join(f"{role}: {means}" for role, means in _MEANS.items())
            mapping = {role: c for role, c in self._mapping.items() if c is not None and role != "ignore"}
            mapping["ignore"] = [*self._ignored, *questions]
            option = shlex.quote(f"{_OPTION}={{{_written(mapping)}}}")
            lines = "\n  - ".join([problem, *questions.values()])
            message = f"{lines}\nSay how each is read ({means}); all of them left out is {option}"
            raise UserError(message, file=self.source.name, field=next(iter(questions)))

    def _ways(self, column: str, role: str | None, counts: Counter[str]) -> Iterator[str]:
        """What the user may type for a column."""
        is_pair = self.form.name != "sentences"
        names = [role] if role else ["score", "negative"] if is_pair else []
        names += ["meaning"] if "group" in self.names and "meaning" in self.form.roles else []
        for name in names:
            if name == role or name not in self.names:
                yield _written({name: column})
        value = next((key for key, _ in counts.most_common() if key), "")
        condition = f"{column}={'<value>' if _RESERVED.search(value) else value}"
        if column not in self.named:
            yield _written({"keep": condition} if role is None else {"keep": condition, "ignore": column})
            if is_pair:
                yield _written({"positive_if": condition})
        yield _written({"ignore": column})

    def about(self) -> str:
        """Roles of columns, ignored columns, and negatives left out; after reading."""
        about = ", ".join(
            role if columns == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in self.names.items()
        )
        for role in self._conditions:
            about += f"; {role} {self._mapping[role]}: {self._num_kept} of {len(self._rows)} rows"
        used = {column for columns in self.names.values() for column in columns}
        if ignored := [column for column in self.columns if column and column not in used]:
            about += f"; left out: {', '.join(ignored)}"
        if self._echoes:
            about += f"; negatives that equal their anchor: {list_names(self._echoes)}"
        form = {"scored": "scored pairs"}.get(self.form.name, self.form.name)
        return f"{self.source.name}: {form} ({about})"

    def _example(self, record: UserRecord) -> UserExample:
        """A row. Raises FieldError."""
        form = self.form.name
        group, usage = self._name(record, "group"), self._name(record, "usage")
        has_meaning = "meaning" in record.names or group is None or form != "sentences"
        meaning = self._name(record, "meaning") if has_meaning else usage

        def single(role: str, span: str) -> Sentence:
            return self._sentence(record.entries(role, span, several=False)[0], group, meaning)

        num_positives = 0
        if form == "pairs":
            anchor = single("anchor", "span")
            entries = record.entries("positive", "positive_span")
            positives = [self._sentence(entry, group, meaning) for entry in entries]
            if not positives:
                raise record.error("positive", "is empty")
            entries = record.entries("negative", "negative_span")
            negatives = [self._sentence(entry, group) for entry in entries]
            negatives = [s for s in negatives if (s.text, s.span) != (anchor.text, anchor.span)]
            self._echoes += [f"row {record.number}"] * (len(negatives) < len(entries))
            texts = {sentence.text for sentence in positives}
            if same := [s.text for s in negatives if s.text in texts]:
                raise record.error("negative", f"{same[0]!r} is a positive of the row too")
            sentences, num_positives = [anchor, *positives, *negatives], len(positives)
        elif form == "scored":
            sentences, num_positives = [single("sentence1", "span1"), single("sentence2", "span2")], 1
        else:
            # The first row has the column of the form; in JSON lines others may have labels that it lacks.
            record.cell("label" if "label" in record.names else self.form.required[-1])
            sentences = [single("text", "span")]
        weight = record.number_in("weight") if record.has("weight") else 1.0
        if not 0 <= weight <= _MAX_WEIGHT:
            raise record.error("weight", f"must be from 0 to {_MAX_WEIGHT:g}, got {weight:g}")
        return UserExample(
            record.number,
            tuple(sentences),
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
        """The first name with the same :func:`value_key`."""
        if (name := record.optional_name(role)) is None:
            return None
        name = name.strip()
        if (spelling := self._spellings.get(name)) is None:
            spelling = self._spellings[name] = self._spellings.setdefault(f"\0{value_key(name)}", name)
            if spelling != name:
                self._respelled.append(f"{name!r} and {spelling!r} (row {record.number})")
        return spelling


def _written(mapping: Mapping[str, str | list[str]]) -> str:
    """A mapping as it is typed: `keep: "answer=accept", ignore: [source, page]`."""
    texts = (f"{role}: {json.dumps(text, ensure_ascii=False)}" for role, text in mapping.items())
    return _QUOTED_WORD.sub(r"\1", ", ".join(texts))
