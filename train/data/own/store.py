"""Examples in memory, or for large tables in memory-mapped files: a row is read when a batch needs it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from train.data.own.rows import Example
from train.declarations.own_data import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NO_SPAN = (-1, -1)
_IN_PAIR_NEGATIVE = "\0other"  # a negative of the row's group: of it, in another meaning
# What is held of each text and of each row; the attributes of a store explain them.
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


@dataclass(frozen=True)
class Store:
    """All rows of a list of tables; T texts in R rows, a row's texts one after another.

    Attributes:
        text: UTF-8 of all texts, one after another.
        ends: int64 (T + 1,), where each text begins and ends in it.
        first: int64 (R + 1,), the first text of each row.
        num_positives: int32 (R,).
        spans: int32 (T, 2), character offsets; -1 = none.
        text_ids: int64 (T,), equal for equal texts.
        labels: int64 (T, 2): numbers of group and meaning.
        label_ids, usage_ids: int64 (R,), of sentences; else 0.
        groups: int64 (R,), what stays together in a split.
        scores, weights: float64 (R,).
        instructions: int32 (R,), into `instruction_texts`; -1 = none.
        numbers: int64 (R,), rows in their files.
        sources: (name of a table, number of its first row here).
        has_groups, has_meanings, has_labels, has_spans: whether any row names one.
    """

    form: Form
    text: Any
    ends: NDArray[np.int64]
    first: NDArray[np.int64]
    num_positives: NDArray[np.int32]
    spans: NDArray[np.int32]
    text_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    label_ids: NDArray[np.int64]
    usage_ids: NDArray[np.int64]
    groups: NDArray[np.int64]
    scores: NDArray[np.float64]
    weights: NDArray[np.float64]
    instructions: NDArray[np.int32]
    numbers: NDArray[np.int64]
    instruction_texts: tuple[str, ...]
    sources: tuple[tuple[str, int], ...]
    has_groups: bool
    has_meanings: bool
    has_labels: bool
    has_spans: bool

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


class StoreWriter:
    """Takes examples one by one.

    Args:
        file: takes the texts: a buffer, or a file that will be mapped.
    """

    def __init__(self, form: Form, file: IO[bytes]) -> None:
        self.form, self._file = form, file
        self._texts, self._rows = bytearray(), bytearray()
        self._end = self._num_texts = 0
        self._instructions: dict[str | None, int] = {None: -1}
        self._sources: dict[str, int] = {}
        self._has: dict[str, Any] = dict.fromkeys(
            ("has_groups", "has_meanings", "has_labels", "has_spans"), False
        )

    def add(self, source: str, example: Example) -> None:
        """One row of a table."""
        num_rows = len(self._rows) // _ROW.itemsize
        self._sources.setdefault(source, num_rows)
        anchor, has = example.sentences[0], self._has
        anchor_id = number_for(anchor.text)
        group = anchor_id if anchor.group is None else _number_for_label(anchor.group)
        label = 0 if example.label is None else _number_for_label(example.label)
        first = self._num_texts
        for place, sentence in enumerate(example.sentences):
            data = sentence.text.encode()
            self._file.write(data)
            self._end += len(data)
            id_ = number_for(sentence.text) if place else anchor_id
            labels = self._labels(example, place, group)
            self._texts += _PACKED_TEXT.pack(self._end, id_, *labels, *(sentence.span or _NO_SPAN))
            has["has_spans"] |= sentence.span is not None
            has["has_groups"] |= sentence.group is not None
            has["has_meanings"] |= sentence.meaning is not None
        self._num_texts += len(example.sentences)
        has["has_labels"] |= example.label is not None
        self._rows += _PACKED_ROW.pack(
            first,
            label,
            0 if example.usage is None else _number_for_label(example.usage),
            label if anchor.group is None and example.label is not None else group,
            example.number,
            example.score or 0.0,
            example.weight,
            example.num_positives,
            self._instructions.setdefault(example.instruction, len(self._instructions) - 1),
        )

    def _labels(self, example: Example, place: int, row_group: int) -> tuple[int, int]:
        """Group and meaning of a text: its own, else what its row says of it."""
        sentence = example.sentences[place]
        is_negative = self.form == "pairs" and place > example.num_positives
        if example.label is not None and sentence.group is None:
            return _number_for_label(example.label), 0
        group = row_group if sentence.group is None else _number_for_label(sentence.group)
        if is_negative and sentence.meaning is None:
            # Of the anchor's group it is a hard negative; where there are no groups it is like no other text.
            return (
                (group, _number_for_label(_IN_PAIR_NEGATIVE))
                if sentence.group
                else (number_for(sentence.text), 1)
            )
        return group, 0 if sentence.meaning is None else _number_for_label(sentence.meaning)

    def finish(self, text: Any) -> Store:
        """The store.

        Args:
            text: what was written to the file, as bytes or mapped.
        """
        texts, rows = np.frombuffer(self._texts, _TEXT), np.frombuffer(self._rows, _ROW)
        columns: dict[str, Any] = {
            name: part[name] for part in (texts, rows) for name in part.dtype.names or ()
        }
        columns["ends"] = np.concatenate([[0], columns["ends"]])
        columns["first"] = np.concatenate([columns["first"], [self._num_texts]])
        return Store(
            form=self.form,
            text=text,
            instruction_texts=tuple(filter(None, self._instructions)),
            sources=tuple(self._sources.items()),
            **columns,
            **self._has,
        )


@dataclass(frozen=True)
class Examples:
    """Some rows of a store: what is trained on, or what is held out.

    Attributes:
        rows: int64, numbers in the store, in their order.
    """

    store: Store
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def form(self) -> Form:
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

    def without(self, dropped: Iterable[int] | NDArray[np.bool_]) -> Examples:
        """These without some of them.

        Args:
            dropped: bool (R,).
        """
        return Examples(self.store, self.rows[~np.asarray(dropped, dtype=bool)])

    def names(self, rows: Sequence[int]) -> list[str]:
        """For messages."""
        return [self.store.name(int(self.rows[row])) for row in rows]
