"""Examples in memory, or for large tables in memory-mapped files: a row is read when a batch needs it."""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from idiomtune.data.own.forms import CORPUS, SENTENCE_PAIRS, TRAINED, UNREAD, normalised
from idiomtune.data.own.table import Record, Source, Span, Table, as_number, find_sources
from idiomtune.errors import UserError
from idiomtune.io.files import first_of
from idiomtune.io.tables import Row, read_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_NAMES = 10_000  # that are kept in memory, for messages
_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"

Mined = Mapping[str, Sequence[str]]  # anchor → its negatives


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
        mapping: role → column, as the user says.
        form: the name of the form, as the user says; None = by the columns.
    """

    def __init__(
        self, source: Source, mapping: Mapping[str, str] | None = None, form: str | None = None
    ) -> None:
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], mapping, _OPTION)
        self._may_be_scored = form is None
        self._echoes: list[str] = []  # rows with negatives that equal their anchor

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[Example]:
        """As :meth:`read`."""
        return self.read(self._example, rows)

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
        if self.form is SENTENCE_PAIRS and self._may_be_scored:
            self._may_be_scored = False
            if numbers := [c for c in self._ignored() if as_number(record.values[c]) is not None]:
                raise UserError(
                    f"the column {numbers[0]!r} has numbers. If they are the pairs' scores: "
                    f"'{_OPTION}={{score: {numbers[0]}}}'. If every pair is a positive: data.form=pairs",
                    file=self.source.name,
                )
        group, meaning = _name(record, "group"), _name(record, "meaning")

        def single(role: str, span: str) -> Sentence:
            return _sentence(record.entries(role, span, several=False)[0], group, meaning)

        num_positives = 0
        if form == "pairs":
            anchor = single("anchor", "span")
            positives = [_sentence(e, group, meaning) for e in record.entries("positive", "positive_span")]
            if not positives:
                raise record.error("positive", "is empty")
            given = [_sentence(e, group) for e in record.entries("negative", "negative_span")]
            negatives = [s for s in given if (s.text, s.span) != (anchor.text, anchor.span)]
            self._echoes += [f"row {record.number}"] * (len(negatives) < len(given))
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
            label=_name(record, "label"),
            usage=_name(record, "usage"),
            score=record.number_in("score") if form == "scored" else None,
            weight=weight,
            instruction=record.optional_text("instruction"),
        )


def _sentence(entry: Record, group: str | None, meaning: str | None = None) -> Sentence:
    """A text of a row; an object's own labels take precedence over those of its row."""
    return Sentence(*entry.marked(), _name(entry, "group") or group, _name(entry, "meaning") or meaning)


def _name(record: Record, role: str) -> str | None:
    name = record.optional_name(role)
    return None if name is None else name.strip()


def read_corpus(names: Sequence[str], option: str = "data.negatives.corpus") -> tuple[list[str], list[Path]]:
    """The distinct texts of a corpus, and its files: tables with a column `text` (and `title`, before it).

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    sources = find_sources(names, option)
    texts = (text for source in sources for text in Table(source, [CORPUS]).read(lambda row: row.marked()[0]))
    return list(dict.fromkeys(texts)), [source.path for source in sources if source.path is not None]


def read_mined(path: Path) -> Mined:
    """The mined negatives, from a file of pairs with negatives that :mod:`idiomtune.factory` wrote."""
    rows = read_rows(path) if path.stat().st_size else ()  # none were mined
    return {row.values["query"]: row.values["neg"] for row in rows}


def with_negatives(example: Example, mined: Mined) -> Example:
    """A pair with the negatives that were mined for its anchor, after its own."""
    own = {sentence.text for sentence in example.sentences}
    more = [Sentence(text) for text in mined.get(example.sentences[0].text, ()) if text not in own]
    return replace(example, sentences=(*example.sentences, *more))


MAX_IN_MEMORY = 2**28  # bytes of texts; more of them are memory-mapped
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
            named = {group: anchor.group, label: example.label}
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
        if self._end > MAX_IN_MEMORY:
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

    def names(self, rows: Sequence[int]) -> list[str]:
        """For messages."""
        return [self.store.name(int(self.rows[row])) for row in rows]
