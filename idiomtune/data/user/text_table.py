"""All examples of users' tables: their texts, and what objectives and benchmarks need of them as arrays."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from idiomtune.data.user.examples import UserExample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_SHOWN = 100  # characters of a text
_IN_PAIR_NEGATIVE = "\0other"  # a negative of the row's group: of it, in another meaning


def stable_hash(name: str) -> int:
    """A stable 64-bit hash of a text or a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def normal_text(text: str) -> str:
    """A text as copies are compared: composed letters, single blanks; case counts."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@lru_cache(2**12)  # the same ones come again and again
def _number(name: str | None) -> int:
    """The number of a group, label, usage or meaning; 0 = none."""
    return 0 if name is None else stable_hash(name)


class TextTable:
    """All rows of a list of tables; T texts in R rows, a row's texts one after another.

    Args:
        form: what a row is: `pairs`, `scored` or `sentences`.
        examples: (name of its table, row), each.

    Attributes:
        first: int64 (R + 1,), the first text of each row.
        num_positives: int64 (R,).
        text_ids: int64 (T,), equal for copies of a text, see :func:`normal_text`.
        labels: int64 (T, 2): numbers of group and meaning.
        label_ids, usage_ids: int64 (R,), of sentences; else 0.
        groups: int64 (R,), equal for rows that stay together in a split.
        scores, weights: float64 (R,).
        names: number of a group or label → its name.
        has_groups, has_meanings, has_labels, has_spans: whether any row has one.
    """

    def __init__(self, form: str, examples: Sequence[tuple[str, UserExample]]) -> None:
        self.form, self._sources = form, [source for source, _ in examples]
        self.rows = rows = [example for _, example in examples]
        self._sentences = sentences = [sentence for row in rows for sentence in row.sentences]
        self.first: NDArray[np.int64] = np.cumsum([0, *(len(row.sentences) for row in rows)])
        self.num_positives = np.array([row.num_positives for row in rows])
        self.text_ids = np.array([stable_hash(normal_text(s.text)) for s in sentences])
        self.label_ids = np.array([_number(row.label) for row in rows])
        self.usage_ids = np.array([_number(row.usage) for row in rows])
        names = [row.sentences[0].group or row.label for row in rows]
        ids = self.text_ids[self.first[:-1]]
        self.groups = np.where([name is None for name in names], ids, [*map(_number, names)])
        self.scores = np.array([row.score or 0.0 for row in rows])
        self.weights = np.array([row.weight for row in rows])
        self.labels = np.array(
            [self._labels(row, text) for row in range(len(rows)) for text in self.texts(row)]
        )
        every = {*names, *(row.label for row in rows), *(row.sentences[0].meaning for row in rows)}
        self.names = {_number(name): name for name in every if name is not None}
        self.has_groups, self.has_meanings, self.has_spans = (
            any(getattr(sentence, name) is not None for sentence in sentences)
            for name in ("group", "meaning", "span")
        )
        self.has_labels = any(row.label is not None for row in rows)

    def _labels(self, row: int, text: int) -> tuple[int, int]:
        """Group and meaning of a text: its own, else those of its row."""
        example, sentence, text_id = self.rows[row], self._sentences[text], int(self.text_ids[text])
        if example.label is not None and sentence.group is None:
            return _number(example.label), 0
        group = _number(sentence.group or example.sentences[0].group) or int(self.text_ids[self.first[row]])
        is_negative = self.form == "pairs" and text - self.first[row] > example.num_positives
        if sentence.meaning is not None or not is_negative:
            return group, _number(sentence.meaning)
        # A negative of the anchor's group is a hard one; without groups it is like no other text.
        return (group, _number(_IN_PAIR_NEGATIVE)) if sentence.group else (text_id, 1)

    def texts(self, row: int) -> range:
        """Numbers of the texts of a row."""
        return range(int(self.first[row]), int(self.first[row + 1]))

    def read_text(self, text: int) -> str:
        """Text number `text`."""
        return self._sentences[text].text

    def span(self, text: int) -> tuple[int, int] | None:
        """Its span."""
        return self._sentences[text].span

    def name(self, row: int) -> str:
        """For messages: `pairs.csv row 17`."""
        return f"{self._sources[row]} row {self.rows[row].number}"

    def group(self, row: int) -> str | None:
        """The name of the row's group or label; None if the row is by itself."""
        return self.rows[row].sentences[0].group or self.rows[row].label

    def instruction(self, row: int) -> str | None:
        """The row's instruction."""
        return self.rows[row].instruction


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
        return self.store.texts(int(self.rows[row]))

    @cached_property
    def anchors(self) -> NDArray[np.int64]:
        """int64 (R,), the first text of each row."""
        return self.store.first[:-1][self.rows]

    def marked_text(self) -> list[tuple[str, str]]:
        """(What its span says, text) of each first text with a span."""
        anchors = (self.store.rows[row].sentences[0] for row in self.rows.tolist())
        return [(anchor.text[slice(*anchor.span)], anchor.text) for anchor in anchors if anchor.span]

    def describe(self, row: int) -> str:
        """A row as it is trained: texts with spans in brackets, as anchor, positive or negative."""
        example = self.store.rows[int(self.rows[row])]
        anchor, num = example.sentences[0], 1 + example.num_positives
        parts = [f"label {example.label}"] if example.label else []
        for position, sentence in enumerate(example.sentences):
            words, (start, end) = sentence.text, sentence.span or (0, 0)
            marked = f"{words[:start]}[{words[start:end]}]{words[end:]}" if end else words
            role = "anchor" if position == 0 else "positive" if position < num else "negative"
            shown = marked if len(marked) <= _MAX_SHOWN else f"{marked[:_MAX_SHOWN]}…"
            parts.append(f"{role if self.form == 'pairs' else 'sentence'} {shown!r}")
        labels = {"group": anchor.group, "meaning": anchor.meaning, "score": example.score}
        parts += [f"{name} {label}" for name, label in labels.items() if label is not None]
        return f"{self.names([row])[0]}: {', '.join(parts)}"

    def names(self, rows: Sequence[int]) -> list[str]:
        """For messages."""
        return [self.store.name(int(self.rows[row])) for row in rows]
