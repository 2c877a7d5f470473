"""All examples of users' tables as arrays."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from idiomtune.data.user.examples import UserExample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_SHOWN = 100  # characters of a text
_NO_SPAN = (-1, -1)
_IN_PAIR_NEGATIVE = "\0other"  # a negative of the row's group: of it, in another meaning
# Of each text and of each row; the attributes of a store explain them.
_TEXT = np.dtype([("text_ids", "i8"), ("labels", "i8", 2), ("spans", "i4", 2)])
_ROW = np.dtype(
    [
        *((name, "i8") for name in ("first", "label_ids", "usage_ids", "groups", "numbers", "contents")),
        *((name, "f8") for name in ("scores", "weights")),
        *((name, "i4") for name in ("num_positives", "instructions")),
    ]
)


def stable_hash(name: str) -> int:
    """A stable 64-bit hash of a text or a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def normal_text(text: str) -> str:
    """A text as copies are compared: composed letters, single blanks; case counts."""
    return " ".join(unicodedata.normalize("NFC", text).split())


_number_for_label = lru_cache(2**12)(stable_hash)  # the same ones come again and again


class TextTable:
    """All rows of a list of tables; T texts in R rows, a row's texts one after another.

    Rows are added one by one; then :meth:`close` makes the arrays.

    Args:
        form: what a row is: `pairs`, `scored` or `sentences`.

    Attributes:
        first: int64 (R + 1,), the first text of each row.
        num_positives: int32 (R,).
        spans: int32 (T, 2), character offsets; -1 = none.
        text_ids: int64 (T,), equal for copies of a text, see :func:`normal_text`.
        labels: int64 (T, 2): numbers of group and meaning.
        label_ids, usage_ids: int64 (R,), of sentences; else 0.
        groups: int64 (R,), equal for rows that stay together in a split.
        scores, weights: float64 (R,).
        instructions: int32 (R,), into `instruction_texts`; -1 = none.
        numbers: int64 (R,), rows in their files.
        contents: int64 (R,), equal for rows that are equal in all that is read.
        names: number of a group or label → its name.
        sources: (name of a table, number of its first row here).
        has_groups, has_meanings, has_labels, has_spans: whether any row has one.
    """

    def __init__(self, form: str) -> None:
        self.form, self._strings = form, list[str]()
        self._texts, self._rows = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        self._instructions: dict[str | None, int] = {None: -1}
        self._sources: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.has_groups = self.has_meanings = self.has_labels = self.has_spans = False

    def add(self, source: str, example: UserExample) -> None:
        """One row of a table."""
        self._sources.setdefault(source, len(self._rows))
        anchor = example.sentences[0]
        anchor_id = stable_hash(normal_text(anchor.text))
        group = anchor_id if anchor.group is None else _number_for_label(anchor.group)
        label = 0 if example.label is None else _number_for_label(example.label)
        meaning = 0 if anchor.meaning is None else _number_for_label(anchor.meaning)
        named = {group: anchor.group, label: example.label, meaning: anchor.meaning}
        self.names |= {number: name for number, name in named.items() if name is not None}
        self._rows.append(
            (
                len(self._strings),
                label,
                0 if example.usage is None else _number_for_label(example.usage),
                label if anchor.group is None and example.label is not None else group,
                example.number,
                stable_hash(repr(replace(example, number=0))),
                example.score or 0.0,
                example.weight,
                example.num_positives,
                self._instructions.setdefault(example.instruction, len(self._instructions) - 1),
            )
        )
        for position, sentence in enumerate(example.sentences):
            self._strings.append(sentence.text)
            id_ = stable_hash(normal_text(sentence.text)) if position else anchor_id
            labels = self._labels(example, position, id_, group)
            self._texts.append((id_, labels, sentence.span or _NO_SPAN))
            self.has_spans |= sentence.span is not None
            self.has_groups |= sentence.group is not None
            self.has_meanings |= sentence.meaning is not None
        self.has_labels |= example.label is not None

    def _labels(self, example: UserExample, position: int, text_id: int, row_group: int) -> tuple[int, int]:
        """Group and meaning of a text: its own, else those of its row."""
        sentence = example.sentences[position]
        if example.label is not None and sentence.group is None:
            return _number_for_label(example.label), 0
        group = row_group if sentence.group is None else _number_for_label(sentence.group)
        if sentence.meaning is not None:
            return group, _number_for_label(sentence.meaning)
        if self.form != "pairs" or position <= example.num_positives:
            return group, 0
        # A negative of the anchor's group is a hard one; without groups it is like no other text.
        return (group, _number_for_label(_IN_PAIR_NEGATIVE)) if sentence.group else (text_id, 1)

    def close(self) -> None:
        """Make the arrays; no row can be added any more."""
        texts, rows = np.array(self._texts, _TEXT), np.array(self._rows, _ROW)
        del self._texts, self._rows
        self.first: NDArray[np.int64] = np.concatenate([rows["first"], [len(self._strings)]])
        self.spans, self.text_ids, self.labels = texts["spans"], texts["text_ids"], texts["labels"]
        self.label_ids, self.usage_ids, self.groups = rows["label_ids"], rows["usage_ids"], rows["groups"]
        self.scores, self.weights, self.numbers = rows["scores"], rows["weights"], rows["numbers"]
        self.contents = rows["contents"]
        self.num_positives, self.instructions = rows["num_positives"], rows["instructions"]
        self.instruction_texts, self.sources = list(self._instructions)[1:], list(self._sources.items())

    def read_text(self, text: int) -> str:
        """Text number `text`."""
        return self._strings[text]

    def span(self, text: int) -> tuple[int, int] | None:
        """Its span."""
        start, end = self.spans[text].tolist()
        return None if (start, end) == _NO_SPAN else (start, end)

    def name(self, row: int) -> str:
        """For messages: `pairs.csv row 17`."""
        source = next(name for name, first in reversed(self.sources) if first <= row)
        return f"{source} row {self.numbers[row]}"

    def group(self, row: int) -> str | None:
        """The name of the row's group; None if the row is by itself."""
        number = int(self.groups[row])
        is_single = number == self.text_ids[self.first[row]]
        return None if is_single else self.names.get(number, str(number))

    def instruction(self, row: int) -> str | None:
        """The row's instruction."""
        number = int(self.instructions[row])
        return None if number < 0 else self.instruction_texts[number]


@dataclass(frozen=True)
class UserExamples:
    """Rows of a text table: the training data, or the held-out data.

    Attributes:
        rows: int64, numbers in the store, in their order.
    """

    store: TextTable
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

    def marked_text(self) -> list[tuple[str, str]]:
        """(What its span says, text) of each first text with a span."""
        if not self.store.has_spans:
            return []
        spans = ((text, self.store.span(text)) for text in self.anchors.tolist())
        texts = ((self.store.read_text(text), span) for text, span in spans if span is not None)
        return [(text[slice(*span)], text) for text, span in texts]

    def describe(self, row: int) -> str:
        """A row as it is trained: texts with spans in brackets, as anchor, positive or negative."""
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
        filled = {role: " | ".join(filter(None, of_role)) for role, of_role in parts.items()}
        shown = ", ".join(f"{role} {words}" for role, words in filled.items() if words)
        return f"{store.name(number)}: {shown}"

    def names(self, rows: Sequence[int]) -> list[str]:
        """For messages."""
        return [self.store.name(int(self.rows[row])) for row in rows]
