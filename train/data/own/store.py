"""Examples in memory, or for large tables in memory-mapped files: a row is read when a batch needs it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from train.data.own.rows import Example
from train.declarations.own_data import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NO_SPAN = -1
_IN_PAIR_NEGATIVE = "\0other"  # a negative of the row's group: of it, in another meaning


def number_for(name: str) -> int:
    """A 64-bit number for a text or a name: equal for equal ones, and for no others but by a freak chance."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


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
        return None if start == _NO_SPAN else (start, end)

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
        self._ends, self._first = array("q", [0]), array("q", [0])
        self._num_positives, self._spans = array("i"), array("i")
        self._text_ids, self._labels = array("q"), array("q")
        self._label_ids, self._usage_ids, self._groups = array("q"), array("q"), array("q")
        self._scores, self._weights = array("d"), array("d")
        self._instructions, self._numbers = array("i"), array("q")
        self._instruction_numbers: dict[str, int] = {}
        self._sources: list[tuple[str, int]] = []
        self._has = {"groups": False, "meanings": False, "labels": False, "spans": False}

    def begin(self, source: str) -> None:
        """The next rows are of this table."""
        if not self._sources or self._sources[-1][0] != source:
            self._sources.append((source, len(self._numbers)))

    def add(self, example: Example) -> None:
        """One row."""
        has = self._has
        anchor = example.sentences[0]
        anchor_id = number_for(anchor.text)
        row_group = number_for(anchor.group) if anchor.group is not None else anchor_id
        for place, sentence in enumerate(example.sentences):
            data = sentence.text.encode()
            self._file.write(data)
            self._ends.append(self._ends[-1] + len(data))
            self._text_ids.append(anchor_id if place == 0 else number_for(sentence.text))
            self._spans.extend(sentence.span or (_NO_SPAN, _NO_SPAN))
            has["spans"] |= sentence.span is not None
            has["groups"] |= sentence.group is not None
            has["meanings"] |= sentence.meaning is not None
            self._labels.extend(self._label(example, place, row_group))
        self._first.append(len(self._text_ids))
        self._num_positives.append(example.num_positives)
        has["labels"] |= example.label is not None
        self._label_ids.append(0 if example.label is None else number_for(example.label))
        self._usage_ids.append(0 if example.usage is None else number_for(example.usage))
        self._groups.append(self._split_group(example, row_group))
        self._scores.append(example.score or 0.0)
        self._weights.append(example.weight)
        self._instructions.append(self._instruction(example.instruction))
        self._numbers.append(example.number)

    def _label(self, example: Example, place: int, row_group: int) -> tuple[int, int]:
        """Group and meaning of a text: its own, else what its row says of it."""
        sentence = example.sentences[place]
        is_negative = self.form == "pairs" and place > example.num_positives
        if example.label is not None and sentence.group is None:
            return number_for(example.label), 0
        group = row_group if sentence.group is None else number_for(sentence.group)
        if is_negative and sentence.meaning is None:
            # Of the anchor's group it is a hard negative; where there are no groups it is like no other text.
            return (
                (group, number_for(_IN_PAIR_NEGATIVE)) if sentence.group else (number_for(sentence.text), 1)
            )
        return group, 0 if sentence.meaning is None else number_for(sentence.meaning)

    def _split_group(self, example: Example, row_group: int) -> int:
        if example.sentences[0].group is None and example.label is not None:
            return number_for(example.label)
        return row_group

    def _instruction(self, instruction: str | None) -> int:
        if instruction is None:
            return -1
        return self._instruction_numbers.setdefault(instruction, len(self._instruction_numbers))

    def finish(self, text: Any) -> Store:
        """The store.

        Args:
            text: what was written to the file, as bytes or mapped.
        """
        return Store(
            form=self.form,
            text=text,
            ends=np.frombuffer(self._ends, np.int64),
            first=np.frombuffer(self._first, np.int64),
            num_positives=_array(self._num_positives, np.int32),
            spans=_array(self._spans, np.int32).reshape(-1, 2),
            text_ids=_array(self._text_ids, np.int64),
            labels=_array(self._labels, np.int64).reshape(-1, 2),
            label_ids=_array(self._label_ids, np.int64),
            usage_ids=_array(self._usage_ids, np.int64),
            groups=_array(self._groups, np.int64),
            scores=_array(self._scores, np.float64),
            weights=_array(self._weights, np.float64),
            instructions=_array(self._instructions, np.int32),
            numbers=_array(self._numbers, np.int64),
            instruction_texts=tuple(self._instruction_numbers),
            sources=tuple(self._sources),
            has_groups=self._has["groups"],
            has_meanings=self._has["meanings"],
            has_labels=self._has["labels"],
            has_spans=self._has["spans"],
        )


def _array(values: array[Any], kind: Any) -> NDArray[Any]:
    return np.frombuffer(values, kind) if len(values) else np.empty(0, kind)


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
