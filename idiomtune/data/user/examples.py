"""From a row of a user's table to an example for training; ambiguous columns are errors."""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice

from idiomtune.data.user.columns import ColumnValues, read_condition, value_key
from idiomtune.data.user.forms import ASKED_ABOUT, LABELS_AS_SCORES, TRAINED, is_annotation, number_stem
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import HEAD, Span, UserRecord, UserTable, is_empty
from idiomtune.declarations.options import as_list
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.io.tables import Row, normalise

log = logging.getLogger(__name__)

_CONDITIONS = ("keep", "positive_if")
_NEARLY = 0.8  # as difflib measures: `idoim` is nearly `idiom`
_MANY_CUT = 0.05  # warn of a larger share of spans that begin or end within a word
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
        values: column → its values in the rows that meet the user's conditions.
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
        self._num_read = self._num_kept = self._num_spans = 0
        self._echoes: list[str] = []  # rows with negatives that equal their anchor
        self._parts_of_words: list[str] = []  # spans that begin or end within a word
        self._spellings, self._respelled = {} if spellings is None else spellings, list[str]()
        self._has_usages = False  # as its meanings
        self.values: dict[str, ColumnValues] = defaultdict(ColumnValues)
        self._num_rows = 0

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[UserExample]:
        """The examples of the rows that meet the user's conditions, as :meth:`read`.

        Raises:
            UserError: as :meth:`read`; after the last row, if columns may say which rows are to be trained.
        """
        rows = self._select(iter(self.source.rows() if rows is None else rows))
        try:
            yield from self.read(self._example, map(self._count_values, rows))
        except UserError:
            self._ask_about_columns()  # rows with problems may be those to leave out
            raise
        self._ask_about_columns()
        if len(self._parts_of_words) > max(1, _MANY_CUT * self._num_spans):
            log.warning(
                "%s: %d of %d spans begin or end within a word (%s): start and end count characters from 0, "
                "not bytes or words, without the end; or map the column with the words of the span, %s",
                *(self.source.name, len(self._parts_of_words), self._num_spans),
                *(list_names(self._parts_of_words, 1), self._option_with(span="<column>")),
            )
        if self._respelled:
            names = list_names(self._respelled, 3)
            log.warning("%s: names that are read as equal: %s", self.source.name, names)

    def negatives(self) -> dict[str, list[str]]:
        """The texts of rows for which `positive_if` does not hold: anchor → its negatives."""
        negatives: dict[str, list[str]] = {}
        if "positive_if" in self._conditions:
            table = ExampleTable(self.source, self._mapping, "pairs", self._spellings)
            wrong = table._select(self.source.rows(), are_right=False)
            for example in table.read(table._example, wrong, may_be_empty=True):
                texts = [sentence.text for sentence in example.sentences[1 : 1 + example.num_positives]]
                negatives.setdefault(example.sentences[0].text, []).extend(texts)
        return negatives

    def _select(self, rows: Iterator[Row], *, are_right: bool = True) -> Iterator[Row]:
        """The rows for which the user's conditions hold; those on columns that the table lacks hold."""
        head = list(islice(rows, HEAD))
        columns = {column for row in head for column in row.values}
        for self._num_read, row in enumerate(chain(head, rows), 1):
            holds = {
                role: all(test(row.values.get(column)) for column, test in tests if column in columns)
                for role, tests in self._conditions.items()
            }
            if holds.get("keep", True) and holds.get("positive_if", True) == are_right:
                self._num_kept += 1
                yield row
        if are_right and self._num_read and not self._num_kept:
            conditions_ = " and ".join(str(self._mapping[role]) for role in self._conditions)
            raise UserError(f"{_OPTION}: no row has {conditions_}", file=self.source.name)

    def _option_with(self, **more: str | list[str]) -> str:
        """The option with the user's mapping and more, to type in a shell."""
        mapping = {role: columns for role, columns in self._mapping.items() if columns is not None}
        if ignored := [*self._ignored, *as_list(more.pop("ignore", []))]:
            mapping["ignore"] = ignored
        for role in self._conditions.keys() & more:
            more[role] = f"{mapping[role]} & {more[role]}"
        text = f"{_OPTION}={{{_written({**mapping, **more})}}}"
        return "'" + text.replace("'", r"'\''") + "'"

    def _count_values(self, row: Row) -> Row:
        """Count the values of the row's columns."""
        self._num_rows += 1
        for column, value in row.values.items():
            self.values[column].add(value)
        return row

    def _look_at(self, head: Sequence[Row], header: Sequence[str]) -> None:
        """Also read `usage` as the meaning of sentences with groups that have no column of meanings."""
        super()._look_at(head, header)
        form = self._fitting_form(header)
        names = self._recognise(form, header) if form else {}
        if form and form.name == "sentences" and {"group", "usage"} <= names.keys():
            meanings = names.get("meaning", [])
            if all(is_empty(row.values.get(column)) for row in head for column in meanings):
                self.left_out.update(meanings)
                self._chosen = {**self._chosen, "meaning": names["usage"][0]}
                self._has_usages = True

    def _ask_about_columns(self) -> None:
        """Raises UserError if columns may say which rows to train on, or as what, and nobody said how."""
        roles = {c: role for names in self.kinds.values() for role, columns in names.items() for c in columns}
        stems = {stem for column in roles if (stem := number_stem(column))}
        choices: dict[str, list[dict[str, str]]] = {}  # column → what may be typed
        for column, values in self.values.items():
            role, values.num_rows = roles.get(column), self._num_rows
            is_named = column in self.named | self.left_out
            is_equal = values.num_distinct < 2  # also by `keep`
            is_settled = column in self._chosen.values() or (role is None and is_named)
            if is_settled or (is_equal and not is_named) or not roles:
                continue
            few = values.may_sort_rows or is_equal
            if role == "label":
                is_asked = few and "group" in roles.values()
            elif role == "score":
                are_two = bool(values.numbers) and values.num_distinct <= 2 and not is_named
                are_classes = few and not values.have_fractions and not are_two
                is_asked = are_classes and normalise(column) in LABELS_AS_SCORES
            elif role is not None or is_annotation(column):
                continue
            else:
                is_known = normalise(column) in ASKED_ABOUT or number_stem(column) in stems
                is_asked = few or is_known or bool(self._nearly(column, {*roles.values()}))
            if is_asked:
                choices[column] = self._choices(column, values, role, {*roles.values()})
        if choices:
            raise UserError(self._question(choices), file=self.source.name, field=next(iter(choices)))

    def _choices(
        self, column: str, values: ColumnValues, role: str | None, roles: Set[str]
    ) -> list[dict[str, str]]:
        """What the user may type for a column: the first is the example, the last that it is ignored."""
        near = self._nearly(column, roles)
        possible, conditions = [*near], list[dict[str, str]]()
        if "group" in roles and "meaning" in self.form.roles and "meaning" not in roles:
            possible.append("meaning")
        if role is not None and (role == "label" or values.are_numbers):
            possible.append(role)
        if self.form.name == "pairs" and values.are_numbers and "negative" not in roles:
            possible.append("score")
        if (values.may_sort_rows or values.are_numbers) and column not in self.named:
            condition = values.condition(column)
            conditions.append({"keep": condition} if role is None else {"keep": condition, "ignore": column})
            if self.form.name == "pairs" or role == "score":
                conditions.append({"positive_if": condition})
        elif self.form.name == "pairs":
            possible.append("negative")
        as_role = [{name: column} for name in dict.fromkeys(possible)]
        ways = [*as_role, *conditions] if role or near else [*conditions, *as_role]
        return [*ways, {"ignore": column}]

    def _nearly(self, column: str, roles: Set[str]) -> list[str]:
        """The name that a column nearly has, of a role that the table lacks."""
        aliases = [alias for role, names in self.form.roles.items() if role not in roles for alias in names]
        return difflib.get_close_matches(normalise(column), aliases, 1, _NEARLY)

    def _question(self, choices: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
        """The message that asks about columns."""
        lines = [
            f"{column} ({self.values[column]}): {' or '.join(f'{{{_written(way)}}}' for way in ways)}"
            for column, ways in choices.items()
        ]
        every = {role for ways in choices.values() for way in ways for role in way}
        means = "; ".join(f"{role}: {means}" for role, means in _MEANS.items() if role in every)
        ignored = self._option_with(ignore=[*choices])
        if len(choices) > 1:
            problem = f"and {len(choices) - 1} more columns may say which rows are right, or what they are:"
            advice = f"all of them left out is {ignored}"
        else:
            ((example, *_),) = choices.values()
            problem = "may say which rows are right, or what they are:"
            advice = f"for example {self._option_with(**example)}; left out it is {ignored}"
        if missing := sorted(self.named - self.values.keys()):
            absent = f"there is no column {missing[0]!r}, which {_OPTION} names"
            if near := difflib.get_close_matches(missing[0], choices, 1):
                return f"{absent} (is it {near[0]!r}?)"
            problem = f"{absent}; {problem}"
        return "\n  - ".join([problem, *lines]) + f"\nSay how each is read ({means}): {advice}"

    def about(self) -> str:
        """Roles of columns, ignored columns, and negatives left out; after reading."""
        roles: dict[str, dict[str, None]] = {}
        for kind in self.kinds.values():
            for role, columns in kind.items():
                roles.setdefault(role, {}).update(dict.fromkeys(columns))
        about = ", ".join(
            role if list(columns) == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in roles.items()
        )
        used = {column for columns in roles.values() for column in columns}
        every = dict.fromkeys(column for header in self.kinds for column in header)
        ignored = [column for column in every if column and column not in used]
        for role in self._conditions:
            about += f"; {role} {self._mapping[role]}: {self._num_kept} of {self._num_read} rows"
        if ignored:
            about += f"; left out: {', '.join(ignored)}"
        if self._echoes:
            about += f"; negatives that equal their anchor: {list_names(self._echoes)}"
        form = {"scored": "scored pairs"}.get(self.form.name, self.form.name)
        return f"{self.source.name}: {form} ({about})"

    def _example(self, record: UserRecord) -> UserExample:
        """A row. Raises FieldError."""
        form = self.form.name
        group, meaning = self._name(record, "group"), self._name(record, "meaning")

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
            usage=meaning if self._has_usages else self._name(record, "usage"),
            score=record.number_in("score") if form == "scored" else None,
            weight=weight,
            instruction=record.optional_text("instruction"),
        )

    def _sentence(self, entry: UserRecord, group: str | None, meaning: str | None = None) -> Sentence:
        """A text of a row; an object's own labels take precedence over those of its row."""
        text, span = entry.marked_text()
        if span is not None:
            self._num_spans += 1
            if any(0 < end < len(text) and _is_within_word(*text[end - 1 : end + 1]) for end in span):
                self._parts_of_words.append(f"row {entry.number}: {text[slice(*span)]!r}")
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


def _is_within_word(before: str, after: str) -> bool:
    """Whether two letters belong to one word; False in scripts without blanks between words."""
    return before.isalnum() and after.isalnum() and max(before, after) < "\u0e00"
