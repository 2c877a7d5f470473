"""Documents that are read again each time, since their texts may not fit in memory."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, overload

import numpy as np

from train.benchmarks.own.fields import OwnText
from train.data.own.store import number_for
from train.data.own.table import Record, unique
from train.errors import UserError

_START_AGAIN = "start again, and leave the files as they are meanwhile"

Check = Callable[[Record, str], str]  # of a document's row and id, which it returns; raises FieldError


class Ids(Sequence[str]):
    """Names in their order, packed: about 40 bytes each, where a list and a dict take four times as much."""

    def __init__(self) -> None:
        self._text, self._ends, self._numbers = bytearray(), array("Q", [0]), array("q")
        self._order: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None  # positions by their numbers

    def append(self, id_: str) -> None:
        self._text += id_.encode()
        self._ends.append(len(self._text))
        self._numbers.append(number_for(id_))
        self._order = None

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> list[str]: ...

    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return [self[n] for n in range(*position.indices(len(self)))]
        if not 0 <= position < len(self):
            raise IndexError(position)
        return self._text[self._ends[position] : self._ends[position + 1]].decode()

    def find(self, id_: str) -> int | None:
        """The first position of a name; None where it is not among them."""
        numbers, order = self._ordered()
        place = int(np.searchsorted(numbers, number := number_for(id_), sorter=order))
        return int(order[place]) if place < len(order) and numbers[order[place]] == number else None

    def twice(self) -> set[str]:
        """The names that are there more than once."""
        numbers, order = self._ordered()
        again = np.flatnonzero(np.diff(numbers[order]) == 0)
        return {self[n] for n in order[again].tolist()}

    def _ordered(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
        numbers = np.frombuffer(self._numbers, np.int64)
        if self._order is None:
            self._order = numbers.argsort(kind="stable")
        return numbers, self._order


class StreamedDocuments:
    """Documents in files, of which only the ids are held.

    Args:
        read: reads from the start: each document's id and text. It takes a check of ids.

    Each reading is checked against the first by 8 bytes a document: files may change in between.

    Attributes:
        ids: in their order.
        has_spans: whether one of them has a span.
        digest: SHA-256 of texts and spans, in their order.

    Raises:
        UserError: as `read` does; if an id is there twice.
    """

    def __init__(self, read: Callable[[Check | None], Iterator[tuple[str, OwnText]]]) -> None:
        self._read = read
        self.ids = Ids()
        self.has_spans = False
        self._hashes = array("q")
        digest = hashlib.sha256()
        for id_, document in read(None):
            self.ids.append(id_)
            self._hashes.append(hash(document))
            self.has_spans |= document.span is not None
            digest.update(f"{len(document.text)} {document.text} {document.span}".encode())
        self.digest = digest.hexdigest()
        if twice := self.ids.twice():
            only_those = unique()
            for _ in read(lambda record, id_: only_those(record, id_) if id_ in twice else id_):
                pass  # to name the rows

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[OwnText]:
        """The documents, read again.

        Raises:
            UserError: if they are no longer those of the first reading.
        """
        number = 0
        for number, (id_, document) in enumerate(self._read(None), 1):
            if number > len(self) or self._hashes[number - 1] != hash(document):
                raise UserError(f"document {id_!r} changed after it was first read: {_START_AGAIN}")
            yield document
        if number < len(self):
            raise UserError(f"the last {len(self) - number} documents are no longer there: {_START_AGAIN}")


Documents: TypeAlias = Sequence[OwnText] | StreamedDocuments


def have_spans(documents: Documents) -> bool:
    """Whether one of them has a span."""
    if isinstance(documents, StreamedDocuments):
        return documents.has_spans
    return any(document.span for document in documents)
