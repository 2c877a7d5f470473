"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from idiomloss import InfoNCELoss
from train.data.idiolink import Document, Split, document_request, training_request
from train.data.names import TrainDocumentMode, TrainQueryMode
from train.data.tuples import TrainingTuple
from train.objectives.contrastive import ContrastiveObjective, ContrastiveOptions
from train.requests import Request, Role


class IdioLinkData:
    """A split's records, and the tuples drawn from them.

    Args:
        split: the training split.
        tuples: epoch → one tuple an anchor, in the same order in each epoch.
        plain_usages: documents without the idiom, by usage: those of `plain_requests`.
        idiom_records: the split's records with their idiom.
    """

    weights = None

    def __init__(
        self,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]],
        plain_usages: Sequence[str] = (),
        idiom_records: Sequence[Document] = (),
    ) -> None:
        self.name = f"training split {split.name}"
        self.files = list(split.files)
        self.idiom_sentences = [(record.idiom, record.sentence) for record in idiom_records]
        self.usages = [(record.sentence, record.usage == "idiomatic") for record in idiom_records]
        self._tuples = tuples
        self._records: list[Document] = [*split.documents, *split.queries]
        self._number = {record.id: i for i, record in enumerate(self._records)}
        idioms = {record.idiom: i for i, record in enumerate(self._records)}
        self.labels = torch.tensor(  # (N, 2): idiom, meaning
            [(idioms[record.idiom], int(record.meaning == "idiomatic")) for record in self._records]
        )
        self.ids = torch.arange(len(self._records))
        self._epoch_tuples = 0, tuples(0)
        self.anchors = np.array([self._number[t.anchor] for t in self._epoch_tuples[1]], dtype=np.int64)
        self.plain_requests = [document_request(r) for r in self._records if r.usage in plain_usages]
        self._plain = set(self.plain_requests)

    def candidates(self, epoch: int, anchor: int) -> tuple[list[int], list[int]]:
        """Positives, and hard and soft negatives, of an anchor's tuple."""
        if self._epoch_tuples[0] != epoch:
            self._epoch_tuples = epoch, self._tuples(epoch)
        drawn = self._epoch_tuples[1][anchor]
        positives, negatives = drawn.positives, (*drawn.hard, *drawn.soft)
        return [self._number[id_] for id_ in positives], [self._number[id_] for id_ in negatives]

    def request(
        self, record: int, mode: TrainQueryMode | TrainDocumentMode, role: Role, mask: str
    ) -> Request:
        """How a record is embedded."""
        return training_request(self._records[record], mode, role, mask)

    def is_plain(self, request: Request) -> bool:
        """Whether it is one of `plain_requests`."""
        return request in self._plain

    def usage(self, record: int) -> str:
        """literal, idiomatic, simplification or sense."""
        return self._records[record].usage

    def record_name(self, record: int) -> str:
        """Its id."""
        return self._records[record].id


class IdioLinkObjective(ContrastiveObjective):
    """Fine-tunes on training tuples, one an anchor, or on the sentences of a batch against each other.

    Args:
        data: the training split and its tuples.
        loss: InfoNCE with its options.
        options: batches, candidates and modes.
        extra_files: files beside the split's that were read (released tuples, external data).
        note: what the log says of the data beside the counts.
    """

    def __init__(
        self,
        data: IdioLinkData,
        loss: InfoNCELoss,
        options: ContrastiveOptions,
        *,
        extra_files: Sequence[Path] = (),
        note: str = "",
    ) -> None:
        super().__init__(data, loss, options, extra_files=extra_files, note=note, groups_name="idioms")
        self.usages = data.usages
