"""From a row of a user's table to an example for training; ambiguous columns are errors."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from idiomtune.data.user.columns import ColumnValues, add_condition, value_key
from idiomtune.data.user.forms import TRAINED, UNREAD, normalise
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import Span, UserRecord, UserTable
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.io.tables import Row

log = logging.getLogger(__name__)

MAX_NAMES = 10_000  # that are kept in memory, for messages
_CONDITIONS = ("keep", "positive_if")
_MANY_CUT = 0.05  # warn of a larger share of spans that begin or end within a word
_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"
_CLASSES = {"-1", "0", "1", "2"}  # of natural language inference


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
        mapping: role → column, as the user says; column → None leaves it out; `keep` and `positive_if` →
            condition of a row: other rows are left out, or have negatives of their anchor as positives.
        form: the name of the form, as the user says; None = by the columns.
        spellings: name → the first name that differs from it only in case, blanks and the like.
    """

    def __init__(
        self,
        source: Source,
        mapping: Mapping[str, str | None] | None = None,
        form: str | None = None,
        spellings: dict[str, str] | None = None,
    ) -> None:
        self._mapping = mapping or {}
        texts = {role: text for role in _CONDITIONS if (text := self._mapping.get(role))}
        self._conditions = {role: add_condition(text, f"{_OPTION}: {role}") for role, text in texts.items()}
        chosen = {role: name for role, name in self._mapping.items() if name and role not in _CONDITIONS}
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], chosen, _OPTION)
        self.left_out = {column for column, _ in self._conditions.values()}
        self.left_out |= {column for column, role in self._mapping.items() if role is None}
        self._num_read = self._num_kept = self._num_spans = self._num_parts_of_words = 0
        self._echoes: list[str] = []  # rows with negatives that equal their anchor
        self._ends_in_words = True
        self._part_of_word = ""  # one that begins or ends within a word
        self._spellings, self._respelled = {} if spellings is None else spellings, list[str]()
        self._has_usages = False  # as its meanings
        self._is_chosen = form is not None
        self._values: dict[str, ColumnValues] = defaultdict(ColumnValues)  # of columns without a role

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[UserExample]:
        """The examples of the rows that meet the user's conditions, as :meth:`read`."""
        rows = iter(self.source.rows() if rows is None else rows)
        yield from self.read(self._example, self._select(rows) if self._conditions else rows)
        if self._num_parts_of_words > max(1, _MANY_CUT * self._num_spans):
            log.warning(
                "%s: %d of %d spans begin or end within a word (%s): start and end count characters from 0, "
                "the end is not part of the span%s; if they count words, map the column with its words, %s",
                *(self.source.name, self._num_parts_of_words, self._num_spans, self._part_of_word),
                "; all of these are after letters beyond ASCII: do they count bytes?" * self._ends_in_words,
                self._mapping_with(span="<column>"),
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
        """The rows for which the user's conditions hold."""
        for self._num_read, row in enumerate(rows, 1):
            holds = {role: holds(row.values.get(name)) for role, (name, holds) in self._conditions.items()}
            if holds.get("keep", True) and holds.get("positive_if", True) == are_right:
                self._num_kept += 1
                yield row
        if are_right and not self._num_kept:
            wanted = " and ".join(str(self._mapping[role]) for role in self._conditions)
            raise UserError(f"{_OPTION}: no row has {wanted}", file=self.source.name)

    def _mapping_with(self, **more: str | None) -> str:
        """The option with the user's mapping and more."""
        texts = {key: "null" if value is None else value for key, value in {**self._mapping, **more}.items()}
        texts |= {role: f'"{texts[role]}"' for role in _CONDITIONS if role in texts}
        return f"'{_OPTION}={{{', '.join(f'{key}: {text}' for key, text in texts.items())}}}'"

    def _look_at(self, head: Sequence[Row], header: Sequence[str]) -> None:
        """Also find the column with the usage of a group's expression: the meaning of the sentence.

        Raises:
            UserError: if several columns could be it, or it could be a label.
        """
        super()._look_at(head, header)
        self._ask_for_split(head, header)
        form = self._fitting_form(header)
        names = self._recognise(form, header) if form else {}
        score = names["score"][0] if form and form.name == "scored" else ""
        if normalise(score) in ("label", "labels", "class") and score not in self._chosen.values():
            self._ask_for_classes(head, score)
        if form is None or "group" not in names or "meaning" not in form.roles:
            return
        role_of = {column: role for role, columns in names.items() for column in columns}
        free = [column for column in header if column not in {*self.left_out, *self._chosen.values()}]
        labels = [column for column in free if role_of.get(column) == "label"]
        if "meaning" in self._chosen:  # a label would be a class, whatever the group
            self.left_out.update(labels)
            return
        free = [column for column in free if role_of.get(column) in (None, "label", "usage", "meaning")]
        values = {column: ColumnValues(row.values.get(column) for row in head) for column in free}
        meanings = [c for c, v in values.items() if role_of.get(c) == "meaning" and v.counts]
        least = 3 if form.name == "pairs" else 1  # numbers may also judge pairs
        ranks = {column: v.usage_rank(column) for column, v in values.items()}
        ranks = {column: rank for column, rank in ranks.items() if rank[1] >= least}
        usages = [column for column, rank in ranks.items() if rank == max(ranks.values())]
        if meanings and meanings[0] in ranks:
            self.left_out.update(column for column in labels if column in ranks)
            return
        usages = [*meanings, *(c for c in usages if not meanings or role_of.get(c) != "usage")]
        choices = [self._mapping_with(meaning=column) for column in usages]
        if not usages and labels and len(values[labels[0]].counts) == 2:
            cells = ([row.values.get(column) for column in (labels[0], names["group"][0])] for row in head)
            groups = {(value_key(label), group) for label, group in cells}
            if min(Counter(key for key, _ in groups).values()) > 1:  # both labels occur in several groups
                usages = labels
                choices = [self._mapping_with(**{role: labels[0]}) for role in ("meaning", "label")]
        if len(choices) > 1:
            shown = " and ".join(f"{column!r} ({values[column]})" for column in usages)
            problem = f"the meaning of a group's expression could be {shown}: choose {' or '.join(choices)}"
            problem += " (a class, whatever the group)" * (usages == labels)
            raise UserError(problem, file=self.source.name, field=usages[-1])
        if usages and not meanings:
            self._chosen = {**self._chosen, "meaning": usages[0]}
            self._has_usages = role_of.get(usages[0]) == "usage"

    def _ask_for_split(self, head: Sequence[Row], header: Sequence[str]) -> None:
        """Raises UserError if a column says which rows are for training; notes a prompt of all rows."""
        columns = {normalise(column): column for column in header if column not in self.left_out}
        for column in (columns[name] for name in ("split", "partition") if name in columns):
            values = ColumnValues(row.values.get(column) for row in head)
            train = [key for key in values.counts if key.startswith("train")]
            if train and len(values.counts) > 1 and column not in self._chosen.values():
                keep = self._mapping_with(keep=f"{column}={train[0]}")
                problem = f"may say which rows are for training ({values}): take these, {keep}, and give "
                problem += f"others with data.val=, or take all, {self._mapping_with(**{column: None})}"
                raise UserError(problem, file=self.source.name, field=column)
        prompts = {row.values.get(columns["prompt"]) for row in head} if "prompt" in columns else set()
        if len(prompts) == 1 and isinstance(prompt := prompts.pop(), str) and prompt:
            note = f"is left out; model.query_prompt={prompt!r} puts it before queries"
            self._notes.append(f"{self.source.name}, field 'prompt': {note}")

    def _ask_for_classes(self, head: Sequence[Row], column: str) -> None:
        """Raises UserError if labels of pairs are classes, as 0 = entailment and 2 = contradiction."""
        values = ColumnValues(row.values.get(column) for row in head)
        are_words = not any(ColumnValues([key]).are_numbers for key in values.counts)
        are_classes = values.counts.keys() <= _CLASSES if values.are_numbers else are_words
        if are_classes and len(values.counts) > 1 + values.are_numbers:
            choices = [self._mapping_with(score=column)] * values.are_numbers
            right = f"{column}=0" if values.are_numbers else values.right_ones(column)
            choices.append(self._mapping_with(anchor="<sentence>", positive="<sentence>", positive_if=right))
            problem = (
                f"may be a class rather than how alike a pair is ({values}): choose {' or '.join(choices)}"
            )
            raise UserError(problem, file=self.source.name, field=column)

    def check_judgements(self) -> None:
        """Raises UserError if a column without a role may say which of the pairs that were read are right."""
        columns = [column for column, values in self._values.items() if values.may_judge(column)]
        if not columns or self._is_chosen or "positive_if" in self._conditions:
            return
        values, right = self._values[columns[0]], self._values[columns[0]].right_ones(columns[0])
        problem = f"may say which pairs are right ({values}), and has no role: all would be positives."
        problem += f" So may {', '.join(map(repr, columns[1:]))}." * (len(columns) > 1)
        choices = [
            f"Leave other rows out, for example: {self._mapping_with(keep=right)}",
            f"take these as hard negatives of their anchor: {self._mapping_with(positive_if=right)}",
            f"or leave out the column: {self._mapping_with(**dict.fromkeys(columns))}",
        ]
        if values.are_numbers and not any("negative" in names for names in self.kinds.values()):
            choices.insert(0, f"It is the pairs' score: {self._mapping_with(score=columns[0])}")
        raise UserError(problem + "\n  - ".join(["", *choices]), file=self.source.name, field=columns[0])

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
        ignored = [column for column in every if column not in used and normalise(column) not in UNREAD]
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
            used = {column for columns in record.names.values() for column in columns}
            for column in record.values.keys() - used - self.left_out:
                self._values[column].add(record.values[column])
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
                self._num_parts_of_words += 1
                self._ends_in_words &= not text[: span[0]].isascii()
                self._part_of_word = self._part_of_word or f"row {entry.number}: {text[slice(*span)]!r}"
        group = self._name(entry, "group") or group
        return Sentence(text, span, group, self._name(entry, "meaning") or meaning)

    def _name(self, record: UserRecord, role: str) -> str | None:
        """The first name with the same :func:`value_key`."""
        if (name := record.optional_name(role)) is None:
            return None
        name = name.strip()
        if (spelling := self._spellings.get(name)) is None:
            if len(self._spellings) > MAX_NAMES:
                return name
            spelling = self._spellings[name] = self._spellings.setdefault(f"\0{value_key(name)}", name)
            if spelling != name:
                self._respelled.append(f"{name!r} and {spelling!r} (row {record.number})")
        return spelling


def _is_within_word(before: str, after: str) -> bool:
    """Whether two letters belong to one word; False in scripts without blanks between words."""
    return before.isalnum() and after.isalnum() and max(before, after) < "\u0e00"
