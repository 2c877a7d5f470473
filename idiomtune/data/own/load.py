"""A user's tables in one form: read, checked, and split into the training data and the held-out data.

Examples are in memory, or for large tables in memory-mapped files: a row is read when a batch needs it.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from idiomtune.data.own.columns import ColumnValues, condition, value_key
from idiomtune.data.own.forms import CORPUS, TRAINED, UNREAD, normalised
from idiomtune.data.own.table import Record, Source, Span, Table, find_sources
from idiomtune.declarations.dataset import NO_DATA, OwnData
from idiomtune.errors import UserError
from idiomtune.io.files import first_of
from idiomtune.io.tables import Row, read_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_CONDITIONS = ("keep", "positive_if")
_MAX_NAMED = 3
_LOOKED_AT = 1000  # rows whose texts may turn out to be numbers of rows
_TEXT_ROLES = {"pairs": ("anchor", "positive"), "scored": ("sentence1", "sentence2"), "sentences": ("text",)}
_MANY_CUT = 0.05  # a larger share of spans that begin or end within a word is warned of
_MAX_SHOWN = 100  # characters of a text
_MAX_NAMES = 10_000  # that are kept in memory, for messages
_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"
_CLASSES = ("-1", "0", "1", "2")  # of natural language inference

Mined = Mapping[str, list[str]]  # anchor → its negatives


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, and what is known of it.

    Attributes:
        span: character offsets [start, end) in it.
        group: what it is about, such as its expression.
        meaning: which meaning of the group it has.
    """

    text: str
    span: Span | None = None
    group: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
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


class OwnTable(Table):
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
        self._mapping, self._conditions = mapping or {}, {}
        for role in _CONDITIONS:
            if text := self._mapping.get(role):
                self._conditions[role] = condition(text, f"{_OPTION}: {role}")
        chosen = {role: name for role, name in self._mapping.items() if name and role not in _CONDITIONS}
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], chosen, _OPTION)
        self.left_out = {column for column, _ in self._conditions.values()}
        self.left_out |= {column for column, role in self._mapping.items() if role is None}
        self._num_read = self._num_kept = self._num_spans = self._num_cut = 0
        self._echoes: list[str] = []  # rows with negatives that equal their anchor
        self._is_cut_by_bytes = True
        self._cut_span = ""  # one that begins or ends within a word
        self._spellings, self._respelled = {} if spellings is None else spellings, list[str]()
        self._has_usages = False  # as its meanings
        self._is_chosen = form is not None
        self._values: dict[str, ColumnValues] = defaultdict(ColumnValues)  # of columns without a role

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[Example]:
        """As :meth:`read`, of the rows for which the user's conditions hold."""
        rows = iter(self.source.rows() if rows is None else rows)
        yield from self.read(self._example, self._selected(rows) if self._conditions else rows)
        if self._num_cut > max(1, _MANY_CUT * self._num_spans):
            log.warning(
                "%s: %d of %d spans begin or end within a word (%s): start and end count characters from 0, "
                "the end is not part of the span%s; if they count words, map the column with its words, %s",
                *(self.source.name, self._num_cut, self._num_spans, self._cut_span),
                "; all of these are after letters beyond ASCII: do they count bytes?" * self._is_cut_by_bytes,
                self._mapping_with(span="<column>"),
            )
        if self._respelled:
            names = first_of(self._respelled, _MAX_NAMED)
            log.warning("%s: names that are read as equal: %s", self.source.name, names)

    def negatives(self) -> dict[str, list[str]]:
        """The texts of rows for which `positive_if` does not hold: anchor → its negatives."""
        negatives: dict[str, list[str]] = {}
        if "positive_if" in self._conditions:
            table = OwnTable(self.source, self._mapping, "pairs", self._spellings)
            wrong = table._selected(self.source.rows(), are_right=False)
            for example in table.read(table._example, wrong, may_be_empty=True):
                texts = [sentence.text for sentence in example.sentences[1 : 1 + example.num_positives]]
                negatives.setdefault(example.sentences[0].text, []).extend(texts)
        return negatives

    def _selected(self, rows: Iterator[Row], *, are_right: bool = True) -> Iterator[Row]:
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
        """Also find the column that says how a group's expression is used: the meaning of the sentence.

        Raises:
            UserError: if several columns could be it, or it could be a label.
        """
        super()._look_at(head, header)
        self._ask_for_split(head, header)
        form = self._fitting(header)
        names = self._recognised(form, header) if form else {}
        score = names["score"][0] if form and form.name == "scored" else ""
        if normalised(score) in ("label", "labels", "class") and score not in self._chosen.values():
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
        meanings = [c for c, of in values.items() if role_of.get(c) == "meaning" and of.counts]
        least = 3 if form.name == "pairs" else 1  # numbers may also judge pairs
        ranks = {column: of.usage_rank(column) for column, of in values.items()}
        ranks = {column: rank for column, rank in ranks.items() if rank[1] >= least}
        usages = [column for column, rank in ranks.items() if rank == max(ranks.values())]
        if meanings and meanings[0] in ranks:
            self.left_out.update(column for column in labels if column in ranks)
            return
        usages = [*meanings, *(c for c in usages if not meanings or role_of.get(c) != "usage")]
        ways = [self._mapping_with(meaning=column) for column in usages]
        if not usages and labels and len(values[labels[0]].counts) == 2:
            cells = ([row.values.get(column) for column in (labels[0], names["group"][0])] for row in head)
            groups = {(value_key(label), group) for label, group in cells}
            if min(Counter(key for key, _ in groups).values()) > 1:  # both labels occur in several groups
                usages = labels
                ways = [self._mapping_with(**{role: labels[0]}) for role in ("meaning", "label")]
        if len(ways) > 1:
            shown = " and ".join(f"{column!r} ({values[column]})" for column in usages)
            problem = f"the meaning of a group's expression could be {shown}: choose {' or '.join(ways)}"
            problem += " (a class, whatever the group)" * (usages == labels)
            raise UserError(problem, file=self.source.name, field=usages[-1])
        if usages and not meanings:
            self._chosen = {**self._chosen, "meaning": usages[0]}
            self._has_usages = role_of.get(usages[0]) == "usage"

    def _ask_for_split(self, head: Sequence[Row], header: Sequence[str]) -> None:
        """Raises UserError if a column says which rows are for training; notes a prompt of all rows."""
        columns = {normalised(column): column for column in header if column not in self.left_out}
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
        are_classes = values.counts.keys() <= {*_CLASSES} if values.are_numbers else are_words
        if are_classes and len(values.counts) > 1 + values.are_numbers:
            ways = [self._mapping_with(score=column)] * values.are_numbers
            right = f"{column}=0" if values.are_numbers else values.right_ones(column)
            ways.append(self._mapping_with(anchor="<sentence>", positive="<sentence>", positive_if=right))
            problem = f"may be a class rather than how alike a pair is ({values}): choose {' or '.join(ways)}"
            raise UserError(problem, file=self.source.name, field=column)

    def check_judgements(self) -> None:
        """Raises UserError if a column without a role may say which of the pairs that were read are right."""
        columns = [column for column, values in self._values.items() if values.may_judge(column)]
        if not columns or self._is_chosen or "positive_if" in self._conditions:
            return
        values, right = self._values[columns[0]], self._values[columns[0]].right_ones(columns[0])
        problem = f"may say which pairs are right ({values}), and has no role: all would be positives."
        problem += f" So may {', '.join(map(repr, columns[1:]))}." * (len(columns) > 1)
        ways = [
            f"Leave other rows out, for example: {self._mapping_with(keep=right)}",
            f"take these as hard negatives of their anchor: {self._mapping_with(positive_if=right)}",
            f"or leave out the column: {self._mapping_with(**dict.fromkeys(columns))}",
        ]
        if values.are_numbers and not any("negative" in names for names in self.kinds.values()):
            ways.insert(0, f"It is the pairs' score: {self._mapping_with(score=columns[0])}")
        raise UserError(problem + "\n  - ".join(["", *ways]), file=self.source.name, field=columns[0])

    def about(self) -> str:
        """The roles of its columns, what is ignored, and which negatives were left out; once it was read."""
        roles: dict[str, dict[str, None]] = {}
        for kind in self.kinds.values():
            for role, columns in kind.items():
                roles.setdefault(role, {}).update(dict.fromkeys(columns))
        about = ", ".join(
            role if list(columns) == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in roles.items()
        )
        for role in self._conditions:
            about += f"; {role} {self._mapping[role]}: {self._num_kept} of {self._num_read} rows"
        if ignored := self._ignored():
            about += f"; left out: {', '.join(ignored)}"
        if self._echoes:
            about += f"; negatives that equal their anchor: {first_of(self._echoes)}"
        form = {"scored": "scored pairs"}.get(self.form.name, self.form.name)
        return f"{self.source.name}: {form} ({about})"

    def _ignored(self) -> list[str]:
        used = {column for kind in self.kinds.values() for columns in kind.values() for column in columns}
        every = dict.fromkeys(column for kind in self.kinds for column in kind)
        return [column for column in every if column not in used and normalised(column) not in UNREAD]

    def _example(self, record: Record) -> Example:
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
        return Example(
            record.number,
            tuple(sentences),
            num_positives,
            label=self._name(record, "label"),
            usage=meaning if self._has_usages else self._name(record, "usage"),
            score=record.number_in("score") if form == "scored" else None,
            weight=weight,
            instruction=record.optional_text("instruction"),
        )

    def _sentence(self, entry: Record, group: str | None, meaning: str | None = None) -> Sentence:
        """A text of a row; an object's own labels take precedence over those of its row."""
        text, span = entry.marked()
        if span is not None:
            self._num_spans += 1
            if any(0 < end < len(text) and _is_within_word(*text[end - 1 : end + 1]) for end in span):
                self._num_cut += 1
                self._is_cut_by_bytes &= not text[: span[0]].isascii()
                self._cut_span = self._cut_span or f"row {entry.number}: {text[slice(*span)]!r}"
        group = self._name(entry, "group") or group
        return Sentence(text, span, group, self._name(entry, "meaning") or meaning)

    def _name(self, record: Record, role: str) -> str | None:
        """The first name that differs from it only as :func:`value_key` says."""
        if (name := record.optional_name(role)) is None:
            return None
        name = name.strip()
        if (spelling := self._spellings.get(name)) is None:
            if len(self._spellings) > _MAX_NAMES:
                return name
            spelling = self._spellings[name] = self._spellings.setdefault(f"\0{value_key(name)}", name)
            if spelling != name:
                self._respelled.append(f"{name!r} and {spelling!r} (row {record.number})")
        return spelling


def _is_within_word(before: str, after: str) -> bool:
    """Whether two letters are of one word; in scripts without blanks between words nobody knows."""
    return before.isalnum() and after.isalnum() and max(before, after) < "\u0e00"


def read_corpus(names: Sequence[str]) -> list[str]:
    """The distinct texts of tables with a column `text` (and `title`, before it), to mine negatives from.

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    tables = [Table(source, [CORPUS]) for source in find_sources(names, "data.negatives.corpus")]
    return list(dict.fromkeys(text for t in tables for text in t.read(lambda row: row.marked()[0])))


def with_negatives(example: Example, mined: Mined) -> Example:
    """A pair with the negatives that were mined for its anchor, after its own."""
    own = {sentence.text for sentence in example.sentences}
    more = [Sentence(text) for text in mined.get(example.sentences[0].text, ()) if text not in own]
    return replace(example, sentences=(*example.sentences, *more))


_MAX_IN_MEMORY = 2**28  # bytes of texts; more of them are memory-mapped
_NO_SPAN = (-1, -1)
_IN_PAIR_NEGATIVE = "\0other"  # a negative of the row's group: of it, in another meaning
# Of each text and of each row; the attributes of a store explain them.
_TEXT = np.dtype([("ends", "i8"), ("text_ids", "i8"), ("labels", "i8", 2), ("spans", "i4", 2)])
_ROW = np.dtype(
    [
        *((name, "i8") for name in ("first", "label_ids", "usage_ids", "groups", "numbers")),
        *((name, "f8") for name in ("scores", "weights")),
        *((name, "i4") for name in ("num_positives", "instructions")),
    ]
)
_PACKED_TEXT, _PACKED_ROW = struct.Struct("=qqqqii"), struct.Struct("=qqqqqddii")


def number_for(name: str) -> int:
    """A 64-bit number for a text or a name: equal for equal ones, and for no others but by a freak chance."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


_number_for_label = lru_cache(2**12)(number_for)  # the same ones come again and again


class Store:
    """All rows of a list of tables; T texts in R rows, a row's texts one after another.

    Rows are added one by one; then :meth:`close` makes the arrays.

    Args:
        form: what a row is: `pairs`, `scored` or `sentences`.
        file: takes the texts; one on the disk is mapped, if there are more of them than memory should hold.

    Attributes:
        text: UTF-8 of all texts, one after another.
        ends: int64 (T + 1,), where each text begins and ends in it.
        first: int64 (R + 1,), the first text of each row.
        num_positives: int32 (R,).
        spans: int32 (T, 2), character offsets; -1 = none.
        text_ids: int64 (T,), equal for equal texts.
        labels: int64 (T, 2): numbers of group and meaning.
        label_ids, usage_ids: int64 (R,), of sentences; else 0.
        groups: int64 (R,), equal for rows that stay together in a split.
        scores, weights: float64 (R,).
        instructions: int32 (R,), into `instruction_texts`; -1 = none.
        numbers: int64 (R,), rows in their files.
        names: number of a group or label → its name, of the first ones.
        sources: (name of a table, number of its first row here).
        has_groups, has_meanings, has_labels, has_spans: whether any row has one.
    """

    def __init__(self, form: str, file: IO[bytes]) -> None:
        self.form, self._file = form, file
        self._texts, self._rows = bytearray(), bytearray()
        self._end = self._num_texts = 0
        self._instructions: dict[str | None, int] = {None: -1}
        self._sources: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.has_groups = self.has_meanings = self.has_labels = self.has_spans = False

    def add(self, source: str, example: Example) -> None:
        """One row of a table."""
        self._sources.setdefault(source, len(self._rows) // _ROW.itemsize)
        anchor = example.sentences[0]
        anchor_id = number_for(anchor.text)
        group = anchor_id if anchor.group is None else _number_for_label(anchor.group)
        label = 0 if example.label is None else _number_for_label(example.label)
        if len(self.names) < _MAX_NAMES:
            meaning = 0 if anchor.meaning is None else _number_for_label(anchor.meaning)
            named = {group: anchor.group, label: example.label, meaning: anchor.meaning}
            self.names |= {number: name for number, name in named.items() if name is not None}
        self._rows += _PACKED_ROW.pack(
            self._num_texts,
            label,
            0 if example.usage is None else _number_for_label(example.usage),
            label if anchor.group is None and example.label is not None else group,
            example.number,
            example.score or 0.0,
            example.weight,
            example.num_positives,
            self._instructions.setdefault(example.instruction, len(self._instructions) - 1),
        )
        for place, sentence in enumerate(example.sentences):
            data = sentence.text.encode()
            self._file.write(data)
            self._end += len(data)
            id_ = number_for(sentence.text) if place else anchor_id
            labels = self._labels(example, place, id_, group)
            self._texts += _PACKED_TEXT.pack(self._end, id_, *labels, *(sentence.span or _NO_SPAN))
            self.has_spans |= sentence.span is not None
            self.has_groups |= sentence.group is not None
            self.has_meanings |= sentence.meaning is not None
        self._num_texts += len(example.sentences)
        self.has_labels |= example.label is not None

    def _labels(self, example: Example, place: int, text_id: int, row_group: int) -> tuple[int, int]:
        """Group and meaning of a text: its own, else those of its row."""
        sentence = example.sentences[place]
        if example.label is not None and sentence.group is None:
            return _number_for_label(example.label), 0
        group = row_group if sentence.group is None else _number_for_label(sentence.group)
        if sentence.meaning is not None:
            return group, _number_for_label(sentence.meaning)
        if self.form != "pairs" or place <= example.num_positives:
            return group, 0
        # A negative of the anchor's group is a hard one; without groups it is like no other text.
        return (group, _number_for_label(_IN_PAIR_NEGATIVE)) if sentence.group else (text_id, 1)

    def close(self) -> None:
        """Make the arrays; no row can be added any more."""
        self.text: Any
        if self._end > _MAX_IN_MEMORY:
            self._file.flush()
            self.text = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)  # outlives the file
        else:
            self._file.seek(0)
            self.text = self._file.read()
        texts, rows = np.frombuffer(self._texts, _TEXT), np.frombuffer(self._rows, _ROW)
        self.ends: NDArray[np.int64] = np.concatenate([[0], texts["ends"]])
        self.first: NDArray[np.int64] = np.concatenate([rows["first"], [self._num_texts]])
        self.spans, self.text_ids, self.labels = texts["spans"], texts["text_ids"], texts["labels"]
        self.label_ids, self.usage_ids, self.groups = rows["label_ids"], rows["usage_ids"], rows["groups"]
        self.scores, self.weights, self.numbers = rows["scores"], rows["weights"], rows["numbers"]
        self.num_positives, self.instructions = rows["num_positives"], rows["instructions"]
        self.instruction_texts, self.sources = list(self._instructions)[1:], list(self._sources.items())

    def read_text(self, text: int) -> str:
        """Text number `text`."""
        return bytes(self.text[self.ends[text] : self.ends[text + 1]]).decode()

    def span(self, text: int) -> tuple[int, int] | None:
        """Its span."""
        start, end = self.spans[text].tolist()
        return None if (start, end) == _NO_SPAN else (start, end)

    def name(self, row: int) -> str:
        """For messages: `pairs.csv row 17`."""
        source = next(name for name, first in reversed(self.sources) if first <= row)
        return f"{source} row {self.numbers[row]}"

    def group(self, row: int) -> str | None:
        """The name of what stays together with the row; None if it is by itself."""
        number = int(self.groups[row])
        is_alone = number == self.text_ids[self.first[row]]
        return None if is_alone else self.names.get(number, str(number))

    def instruction(self, row: int) -> str | None:
        """The row's instruction."""
        number = int(self.instructions[row])
        return None if number < 0 else self.instruction_texts[number]


@dataclass(frozen=True)
class Examples:
    """Some rows of a store: the training data, or the held-out data.

    Attributes:
        rows: int64, numbers in the store, in their order.
    """

    store: Store
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def form(self) -> str:
        """What a row is."""
        return self.store.form

    def texts(self, row: int) -> range:
        """Numbers of the texts of row number `row` of these."""
        number = self.rows[row]
        return range(int(self.store.first[number]), int(self.store.first[number + 1]))

    @cached_property
    def anchors(self) -> NDArray[np.int64]:
        """int64 (R,), the first text of each row."""
        return self.store.first[:-1][self.rows]

    def marked(self) -> list[tuple[str, str]]:
        """(What its span says, text) of each first text with a span."""
        if not self.store.has_spans:
            return []
        spans = ((text, self.store.span(text)) for text in self.anchors.tolist())
        texts = ((self.store.read_text(text), span) for text, span in spans if span is not None)
        return [(text[slice(*span)], text) for text, span in texts]

    def describe(self, row: int) -> str:
        """A row as it is trained: its texts with their spans in brackets, and what they are to each other."""
        store, number = self.store, int(self.rows[row])
        texts, num = [], 1 + int(store.num_positives[number])
        for text in self.texts(row):
            words, (start, end) = store.read_text(text), store.span(text) or (0, 0)
            marked = f"{words[:start]}[{words[start:end]}]{words[end:]}" if end else words
            texts.append(repr(marked if len(marked) <= _MAX_SHOWN else f"{marked[:_MAX_SHOWN]}…"))
        group, meaning = (store.names.get(name) for name in store.labels[self.anchors[row]].tolist())
        parts: dict[str, Sequence[str | None]]
        parts = {"anchor": texts[:1], "positive": texts[1:num], "negative": texts[num:], "group": [group]}
        if self.form != "pairs":
            label = [store.names.get(int(store.label_ids[number]))]
            parts = {"sentence": texts, "label": label, "group": [group] if label == [None] else []}
        score = [f"{store.scores[number]:g}"] if self.form == "scored" else []
        parts |= {"meaning": [meaning], "score": score}
        shown = (
            f"{role} {' | '.join(filter(None, of_role))}" for role, of_role in parts.items() if any(of_role)
        )
        return f"{store.name(number)}: {', '.join(shown)}"

    def names(self, rows: Sequence[int]) -> list[str]:
        """For messages."""
        return [self.store.name(int(self.rows[row])) for row in rows]


@dataclass(frozen=True)
class OwnSplits:
    """The training data, and the held-out data.

    Attributes:
        train: without rows whose anchor is held out.
        files: that were read, for the run's record.
        revisions: data set of the Hub → commit.
        notes: what a user should know of the data, a line each.
    """

    train: Examples
    val: Examples
    files: Sequence[Path]
    revisions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def check_heads(data: OwnData) -> None:
    """Check what takes no time: that each file exists, its columns and its first row; if it is wrong, all.

    Data sets of the Hub are not checked.

    Raises:
        UserError: as :func:`load_own`.
    """
    named = {"train": data.train, "val": data.val, "negatives.corpus": data.negatives.corpus}
    for option, names in named.items():
        files = [name for name in names or [] if not name.startswith("hf:")]
        for source in find_sources(files, f"data.{option}"):
            if option != "negatives.corpus":
                # Problems are raised after the last row, which is here the first.
                try:
                    next(OwnTable(source, data.columns, data.form).examples(islice(source.rows(), 1)), None)
                except UserError:
                    for _ in OwnTable(source, data.columns, data.form).examples():
                        pass  # to name all of them
                    raise


def own_splits(data: OwnData) -> OwnSplits:
    """As :func:`load_own`, read once per program."""
    return _read_once(data.model_dump_json(), data.negatives.file)


def forget_own_data() -> None:
    """Let go of the tables that an earlier job of this process has read; they may also have changed since."""
    _read_once.cache_clear()


@lru_cache(maxsize=32)
def _read_once(data: str, mined: Path | None) -> OwnSplits:
    options = OwnData.model_validate_json(data)
    if mined is not None:
        rows = read_rows(mined) if mined.stat().st_size else ()  # none were mined
        splits = load_own(options, {row.values["anchor"]: row.values["negatives"] for row in rows})
        return replace(splits, files=[*splits.files, mined])
    splits = load_own(options)
    for note in splits.notes:
        log.info("%s", note)
    return splits


def load_own(data: OwnData, mined: Mined = MappingProxyType({})) -> OwnSplits:
    """The tables of `train` and `val`.

    Args:
        mined: negatives for the pairs of `train`.

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    if data.train is None:
        raise UserError(NO_DATA)
    train_sources = find_sources(data.train, "data.train")
    val_sources = find_sources(data.val or [], "data.val")
    if both := {s.name for s in train_sources} & {s.name for s in val_sources}:
        raise UserError(f"data.train and data.val both name {min(both)}")
    notes: list[str] = []
    spellings: dict[str, str] = {}
    train = _read(train_sources, data, notes, mined, spellings)
    _check_text_columns(train.store, train_sources[0].name)
    if train.store.has_labels and len(np.unique(train.store.label_ids)) == 1:
        label = train.store.names[int(train.store.label_ids[0])]
        problem = f"there is only one label, {label!r}: add sentences with another one to tell it from"
        raise UserError(problem, file=train_sources[0].name)
    if val_sources:
        val = _read(val_sources, data, notes, {}, spellings)
        if val.form != train.form:
            raise UserError(
                f"has {val.form}, but {train_sources[0].name} has {train.form}", file=val_sources[0].name
            )
    else:
        train, val = _split(train, data.val_share, notes)
    train = _without_held_out(train, val, notes)
    if not len(train):
        raise UserError("data.train: no row is left to train on: all of them are in data.val too")
    notes += _oddities(train)
    sources = [*train_sources, *val_sources]
    return OwnSplits(
        train,
        val,
        [s.path for s in sources if s.path is not None],
        {s.name: s.revision for s in sources if s.revision is not None},
        notes,
    )


def _read(
    sources: Sequence[Source], data: OwnData, notes: list[str], mined: Mined, spellings: dict[str, str]
) -> Examples:
    """All rows of some tables, which must be of one form."""
    store: Store | None = None
    with SpooledTemporaryFile(_MAX_IN_MEMORY) as file:
        for source in sources:
            table = OwnTable(source, data.columns, data.form, spellings)
            wrong = table.negatives()
            negatives = {**mined, **{anchor: [*mined.get(anchor, ()), *wrong[anchor]] for anchor in wrong}}
            for example in table.examples():
                wrong.pop(example.sentences[0].text, None)
                store = store or Store(table.form.name, file)
                if table.form.name != store.form:
                    raise UserError(
                        f"has {table.form.name}, but {sources[0].name} has {store.form}: train on both as "
                        "parts of a mixture (+experiment=mixture), or leave one out",
                        file=source.name,
                    )
                store.add(source.name, with_negatives(example, negatives) if negatives else example)
            table.check_judgements()
            notes.append(table.about())
            if wrong:
                notes.append(f"left out, since no row of them is right: {first_of([*wrong], _MAX_NAMED)}")
        assert store is not None  # a table without rows is an error
        store.close()
    unlabelled = np.flatnonzero(store.label_ids == 0)
    if store.has_labels and len(unlabelled):
        raise UserError(
            f"{store.name(unlabelled[0])}: has a group but no label, while other rows have labels"
        )
    return _with_meanings(Examples(store, np.arange(len(store.numbers))))


def _with_meanings(examples: Examples) -> Examples:
    """Without sentences that have no meaning if others have one; rows without a group or span are named."""
    store, first = examples.store, examples.anchors
    has_group = store.groups != store.text_ids[first]
    lacks = {
        "group": store.has_groups & ~has_group,
        "span": store.has_spans & (store.spans[first, 0] < 0),
        "meaning": store.has_meanings & has_group & (store.labels[first, 1] == 0),
    }
    for role, rows in lacks.items():
        if rows.any():
            log.warning("without a %s, while others have one: %s", role, _rows(examples, rows))
    if store.form == "sentences" and not store.has_labels:
        return Examples(store, examples.rows[~lacks["meaning"]])
    return examples


def _check_text_columns(store: Store, source: str) -> None:
    """Raises UserError where a column of texts has one value in all rows, or numbers the rows."""
    for place, role in enumerate(_TEXT_ROLES[store.form]):
        numbers = store.first[:-1] + place
        texts = [store.read_text(text) for text in numbers[:_LOOKED_AT].tolist()]
        counts = [int(text) for text in texts if text.isdecimal() and len(text) < 10]
        are_equal = len(texts) > 1 and (store.text_ids[numbers] == store.text_ids[numbers[0]]).all()
        if are_equal or (len(counts) == len(texts) > 2 and (np.diff(counts) == 1).all()):
            raise UserError(
                f"the {role} is {'one text in all rows' if are_equal else 'the number of the row'} "
                f"({texts[0]!r}, {texts[1]!r}, …): name another, 'data.columns={{{role}: <column>}}'",
                file=source,
            )


def _split(examples: Examples, share: float, notes: list[str]) -> tuple[Examples, Examples]:
    """Hold out whole groups, the same in every run: those of the smallest numbers, which are hashes."""
    store, rows = examples.store, examples.rows
    what = "groups" if store.has_groups else "labels" if store.has_labels else "anchors"
    distinct, counts = np.unique(store.groups[rows], return_counts=True)
    # A single label can neither be learnt nor found; for anything else two tell more than one.
    is_by_label = store.form == "sentences" and (what == "labels" or not store.has_meanings)
    if len(distinct) < (4 if is_by_label else 2):
        raise UserError(
            f"data.val: whole {what} are held out, and {len(distinct)} are too few to hold out some: "
            f"give a file with data.val="
        )
    # A group that is larger than all that is to be held out stays in training.
    wanted = share * len(rows)
    fitting = np.flatnonzero(counts <= wanted)
    enough = int(np.searchsorted(np.cumsum(counts[fitting]), wanted)) + 1
    fitting = fitting[: min(enough, len(distinct) - 1)]
    least = 2 if len(distinct) >= 4 else 1
    if len(fitting) < least:
        fitting = np.argsort(counts, kind="stable")[:least]
    is_held_out = np.isin(store.groups[rows], distinct[fitting])
    more = f": whole {what} are held out, and at least {least}" * bool(is_held_out.mean() > 1.25 * share)
    notes.append(
        f"held out: {int(is_held_out.sum())} of {len(is_held_out)} rows, {len(fitting)} of {len(distinct)} "
        f"{what} (data.val_share={share:g}{more}){_named(store, distinct[fitting])}"
    )
    return Examples(store, rows[~is_held_out]), Examples(store, rows[is_held_out])


def _without_held_out(train: Examples, val: Examples, notes: list[str]) -> Examples:
    """Rows of which the anchor (of scored pairs: both sentences) is not held out."""
    is_in_both = np.isin(_keys(train), _keys(val))
    if is_in_both.any():
        notes.append(f"left out of training, since they are held out too: {_rows(train, is_in_both)}")
    if train.store.has_groups and val.store.has_groups:
        groups = np.unique(val.store.groups[val.rows])
        new = np.setdiff1d(groups, train.store.groups[train.rows])
        if len(new) < len(groups):
            known = f"{len(groups) - len(new)} of {len(groups)} held-out groups are trained on too"
            others = _named(val.store, new, "; not trained on: ")
            notes.append(f"{known}, so the scores are of new rows of known groups{others}")
    train = Examples(train.store, train.rows[~is_in_both])
    if train.form == "pairs":
        trained = train.store.text_ids[[text for row in range(len(train)) for text in train.texts(row)]]
        is_trained = np.isin(val.store.text_ids[val.anchors + 1], trained)
        if is_trained.any():
            notes.append(f"held-out answers that are trained on too: {_rows(val, is_trained)}")
    return train


def _named(store: Store, groups: NDArray[np.int64], before: str = ": ") -> str:
    """The names of groups or labels, in the order of the alphabet; "" if they have none."""
    names = sorted(store.names[number] for number in groups.tolist() if number in store.names)
    return f"{before}{first_of(names)}" if names else ""


def _keys(examples: Examples) -> Any:
    """int64 (R,), equal for rows that are the same: by the anchor, or the two sentences of a scored pair."""
    ids = examples.store.text_ids
    anchors = ids[examples.anchors]
    if examples.form != "scored":
        return anchors
    others = ids[examples.anchors + 1]
    return _both(np.minimum(anchors, others), np.maximum(anchors, others))


def _both(first: Any, second: Any) -> Any:
    return first * np.int64(31) + second  # wraps around, as hashes may


def _oddities(train: Examples) -> Iterator[str]:
    """What a user may not have meant, a line each; it is trained on nevertheless."""
    store, first = train.store, train.anchors
    ids = store.text_ids[first]
    keys = ids if train.form == "sentences" else _both(ids, store.text_ids[first + 1])
    is_again = np.ones(len(keys), dtype=bool)
    is_again[np.unique(keys, return_index=True)[1]] = False
    if is_again.any():
        yield f"duplicated in the training data: {_rows(train, is_again)}; they count twice"
    if train.form == "sentences":
        what = "label" if store.has_labels else "group and meaning" if store.has_meanings else "group"
        labels = store.label_ids[train.rows] if store.has_labels else store.labels[first]
        _, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        is_alone = counts[which.ravel()] == 1
        if is_alone.any():
            yield f"no other sentence of the same {what}: {_rows(train, is_alone)}"
    if train.form != "scored" and store.has_groups and store.has_meanings:
        is_trained = np.isin(np.arange(len(store.numbers)), train.rows)
        pairs = np.unique(store.labels[np.repeat(is_trained, np.diff(store.first))], axis=0)
        groups, counts = np.unique(pairs[:, 0], return_counts=True)
        is_one_sided = np.isin(store.labels[first, 0], groups[counts == 1])
        if is_one_sided.any():
            yield (
                f"{int((counts == 1).sum())} of {len(groups)} groups have one meaning, and no hard negative: "
                f"{_rows(train, is_one_sided)}"
            )


def _rows(examples: Examples, chosen: NDArray[np.bool_]) -> str:
    """`12 rows (pairs.csv row 3, pairs.csv row 9, …)`."""
    rows = np.flatnonzero(chosen)
    names = ", ".join(examples.names(rows[:_MAX_NAMED].tolist())) + ", …" * (len(rows) > _MAX_NAMED)
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({names})"
