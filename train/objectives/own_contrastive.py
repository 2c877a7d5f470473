"""A user's own pairs or sentences as data of contrastive training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from train.data.names import TrainDocumentMode, TrainQueryMode
from train.data.own.store import Examples
from train.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class OwnContrastiveData:
    """Each row is an anchor; texts are numbered as in the store.

    Attributes:
        name: for messages.
        num_positives, num_negatives: of a row in one epoch, the next ones in the next; None = all.
        instruction: put before an anchor whose row has none.
    """

    examples: Examples
    name: str
    files: Sequence[Path]
    num_positives: int | None = None
    num_negatives: int | None = None
    instruction: str | None = None

    @property
    def anchors(self) -> NDArray[np.int64]:
        """int64 (A,), the first text of each row."""
        return self.examples.anchors

    @cached_property
    def labels(self) -> Tensor:
        """int64 (T, 2): numbers of group and meaning."""
        return torch.from_numpy(self.examples.store.labels)

    @cached_property
    def ids(self) -> Tensor:
        """int64 (T,), equal for equal texts."""
        return torch.from_numpy(self.examples.store.text_ids)

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """(A,), or None where all are 1."""
        weights = self.examples.store.weights[self.examples.rows]
        return None if (weights == 1.0).all() else weights

    @cached_property
    def plain_requests(self) -> Sequence[Request]:
        """Texts without a span, where others have one."""
        store = self.examples.store
        if not store.has_spans:
            return []
        texts = [text for row in range(len(self.examples)) for text in self.examples.texts(row)]
        return [Request(store.read_text(text)) for text in texts if store.span(text) is None]

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:
        """(What its span says, sentence) of each anchor with a span."""
        return self.examples.marked()

    def candidates(self, epoch: int, anchor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Texts of the anchor's row that are positives, and that are negatives."""
        texts = self.examples.texts(anchor)[1:]
        num_positives = int(self.examples.store.num_positives[self.examples.rows[anchor]])
        return (
            _in_turn(texts[:num_positives], self.num_positives, epoch),
            _in_turn(texts[num_positives:], self.num_negatives, epoch),
        )

    def request(
        self, record: int, mode: TrainQueryMode | TrainDocumentMode, role: Role, mask: str
    ) -> Request:
        """How a text is embedded; one without a span as a whole, whatever the mode."""
        store = self.examples.store
        text, span = store.read_text(record), store.span(record)
        instruction = self._instruction(record, mode) if role == "query" else None
        if span is None or mode == "sentence":
            # The span goes along for queries, as with IdioLink's.
            return Request(text, span if role == "query" else None, role=role, instruction=instruction)
        start, end = span
        pooling = "span" if mode.endswith("span") else "sentence"
        if mode.startswith("masked_") and end - start < len(text):
            text, end = text[:start] + mask + text[end:], start + len(mask)
            return Request(text, (start, end), role=role, pooling=pooling)  # type: ignore[arg-type]
        return Request(text, span, role=role, instruction=instruction, pooling=pooling)  # type: ignore[arg-type]

    def _instruction(self, record: int, mode: str) -> str | None:
        if mode.startswith("masked_"):
            return None
        store = self.examples.store
        row = int(np.searchsorted(store.first, record, side="right")) - 1
        return store.instruction(row) or self.instruction

    def is_plain(self, request: Request) -> bool:
        """Whether it is a whole text without a span, where others have one."""
        return self.examples.store.has_spans and request.span is None and request.role == "document"

    def usage(self, record: int) -> str:
        """The kind of sentence that its row says it is."""
        row = int(np.searchsorted(self.examples.store.first, record, side="right")) - 1
        return str(self.examples.store.usage_ids[row])

    def record_name(self, record: int) -> str:
        """Its file and row."""
        row = int(np.searchsorted(self.examples.store.first, record, side="right")) - 1
        return self.examples.store.name(row)


def _in_turn(texts: range, limit: int | None, epoch: int) -> Sequence[int]:
    """At most `limit` of them, the next ones in the next epoch."""
    if limit is None or limit >= len(texts):
        return texts
    return [texts[(epoch * limit + i) % len(texts)] for i in range(limit)]
