"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CandidateMasks, InfoNCELoss, candidate_masks
from idiomloss.candidates import FalseNegatives, InBatch
from train.data.idiolink import Document, Split, document_request, training_request
from train.data.names import TrainDocumentMode, TrainQueryMode
from train.data.tuples import TrainingTuple
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.steps import balanced_steps, shuffled_steps
from train.requests import Request, Role


@dataclass(frozen=True)
class IdioLinkOptions:
    """How anchors are batched, what they are compared with, and how both are embedded.

    Attributes:
        batch_size: anchors an optimizer step.
        seed: of the order of anchors.
        query_modes: how anchors are embedded; with several, the loss is the mean over modes, and
            modes that read the same text share its forward pass.
        query_weights: weights of the query modes in that mean; None = equal ones.
        document_modes: how candidates are embedded; with several, the loss is the mean over them too.
        mask: what stands for a hidden span in the modes that hide it.
        in_batch: which candidates of other anchors are negatives.
        false_negatives: what becomes of those with the anchor's idiom and meaning.
        candidates_from_batch: the candidates of an anchor are all other anchors of its micro-batch.
        idioms_per_batch: make steps of that many idioms with equally many anchors; None = shuffled.
        positive_weights: weight of a positive by its usage; None = all the same.
        plain_usages: documents without the idiom, by usage: those of `plain_requests`.
        drop_last: leave out the last batch of an epoch where it is not full.
    """

    batch_size: int
    seed: int
    query_modes: Sequence[TrainQueryMode]
    query_weights: Sequence[float] | None
    document_modes: Sequence[TrainDocumentMode]
    mask: str
    in_batch: InBatch
    false_negatives: FalseNegatives
    candidates_from_batch: bool
    idioms_per_batch: int | None
    positive_weights: Mapping[str, float] | None
    plain_usages: Sequence[str]
    drop_last: bool


class _Candidate(NamedTuple):
    """A document that anchors of a batch are compared with.

    Attributes:
        id: of its record.
        owner: the anchor for which it was drawn, by its position in the batch; -1 = none in particular.
        is_positive: whether it was drawn as its owner's positive.
    """

    id: str
    owner: int
    is_positive: bool


@dataclass(frozen=True)
class _Targets:
    """A batch of B anchors and M candidates.

    Its requests are the anchors, mode by mode, then the candidates, mode by mode.

    Attributes:
        masks: which pairs are positive, negative and hard, each (B, M).
        positive_weights: (B, M), or None where all weigh the same.
    """

    num_anchors: int
    masks: CandidateMasks
    positive_weights: Tensor | None


class IdioLinkObjective:
    """Fine-tunes on training tuples, one an anchor, or on the sentences of a batch against each other.

    Args:
        split: the training split.
        tuples: epoch → one tuple an anchor. Anchors without a positive are left out (`num_skipped`).
            With `candidates_from_batch` the tuples only say what the anchors are.
        loss: InfoNCE with its options.
        options: batches, candidates and modes.
        extra_files: files beside the split's that were read (released tuples, external data).
        note: what the log says of the data beside the counts.
        idiom_sentences: the split's sentences with their idiom, as (idiom, sentence).

    Raises:
        UserError: if no anchor has a positive, or `drop_last` leaves no batch.
    """

    def __init__(
        self,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]],
        loss: InfoNCELoss,
        options: IdioLinkOptions,
        *,
        extra_files: Sequence[Path] = (),
        note: str = "",
        idiom_sentences: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._tuples = tuples
        self._epoch_tuples: tuple[int, list[TrainingTuple]] | None = None
        self._loss = loss
        self.options = options
        self.query_weights = options.query_weights or [1.0] * len(options.query_modes)
        self.note = note
        self.files = [*split.files, *extra_files]
        self.idiom_sentences = list(idiom_sentences)
        self.modules = nn.Module()  # trains nothing beside the encoder

        self._records: dict[str, Document] = {r.id: r for r in (*split.documents, *split.queries)}
        self._number = {id_: i for i, id_ in enumerate(self._records)}
        records = self._records.values()
        idioms = {record.idiom: i for i, record in enumerate(records)}
        self._labels = torch.tensor(  # (number of records, 2): idiom, meaning
            [(idioms[record.idiom], int(record.meaning == "idiomatic")) for record in records]
        )
        self.plain_requests: list[Request] = [
            document_request(record) for record in records if record.usage in options.plain_usages
        ]
        self._plain = set(self.plain_requests)

        drawn = tuples(0)
        self._anchors = [self._records[t.anchor] for t in drawn]
        self._usable = self._anchors_with_positives(drawn)
        self.num_skipped = len(drawn) - len(self._usable)
        if not self._usable:
            raise UserError(f"training split {split.name}: no anchor has a positive document")
        if options.drop_last and len(self._usable) < options.batch_size:
            raise UserError(
                f"training split {split.name} has {len(self._usable)} anchors, fewer than "
                f"trainer.batch_size={options.batch_size}, and objective.drop_last leaves out every "
                "batch that is not full: lower the batch size or set objective.drop_last=false"
            )

    def _anchors_with_positives(self, tuples: Sequence[TrainingTuple]) -> list[int]:
        """Numbers of the anchors that have a positive: in their tuple, or among the other anchors."""
        if not self.options.candidates_from_batch:
            return [i for i, t in enumerate(tuples) if t.positives]
        num_alike = Counter((anchor.idiom, anchor.meaning) for anchor in self._anchors)
        return [i for i, anchor in enumerate(self._anchors) if num_alike[anchor.idiom, anchor.meaning] > 1]

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The mask, if a mode hides spans by it."""
        modes = (*self.options.query_modes, *self.options.document_modes)
        return {"mask": self.options.mask} if any(mode.startswith("masked_") for mode in modes) else {}

    def describe(self) -> str:
        """One line for the log."""
        idioms = {self._anchors[i].idiom for i in self._usable}
        idioms_per_batch = self.options.idioms_per_batch
        skipped = f", {self.num_skipped} without a positive left out" if self.num_skipped else ""
        if idioms_per_batch is not None and idioms_per_batch > len(idioms):
            skipped += f", fewer than the {idioms_per_batch} that a batch can hold"
        return (
            f"{len(self._usable)} anchors of {len(idioms)} idioms{skipped}; "
            f"queries as {' and '.join(self.options.query_modes)}" + (f"; {self.note}" if self.note else "")
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all anchors in an order drawn from seed and epoch, then cut."""
        options = self.options
        rng = np.random.default_rng([options.seed, epoch, 0])
        if options.idioms_per_batch is None:
            steps = shuffled_steps(self._usable, options.batch_size, rng)
        else:
            classes = {i: (self._anchors[i].idiom, self._anchors[i].usage) for i in self._usable}
            steps = balanced_steps(self._usable, options.batch_size, options.idioms_per_batch, classes, rng)
        if options.drop_last:
            steps = [step for step in steps if len(step) == options.batch_size]
        return [[part.tolist() for part in np.array_split(step, shards) if len(part)] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests and masks of these anchors."""
        if self._epoch_tuples is None or self._epoch_tuples[0] != epoch:
            self._epoch_tuples = epoch, self._tuples(epoch)
        tuples = [self._epoch_tuples[1][i] for i in anchors]  # B
        anchor_ids = [t.anchor for t in tuples]
        candidates = self._candidates(tuples)  # M
        candidate_ids = [candidate.id for candidate in candidates]
        anchor_numbers, candidate_numbers = self._numbers(anchor_ids), self._numbers(candidate_ids)
        masks = candidate_masks(
            len(tuples),
            torch.tensor([candidate.owner for candidate in candidates]),  # (M,)
            torch.tensor([candidate.is_positive for candidate in candidates]),  # (M,)
            anchor_labels=self._labels[anchor_numbers],  # (B, 2)
            candidate_labels=self._labels[candidate_numbers],  # (M, 2)
            anchor_ids=anchor_numbers,  # (B,)
            candidate_ids=candidate_numbers,  # (M,)
            in_batch=self.options.in_batch,
            false_negatives=self.options.false_negatives,
        )
        requests = [
            *self._requests(anchor_ids, self.options.query_modes, "query"),
            *self._requests(candidate_ids, self.options.document_modes, "document"),
        ]
        targets = _Targets(len(tuples), masks, self._positive_weights(len(tuples), candidate_ids))
        plain_rows = [row for row, request in enumerate(requests) if request in self._plain]
        return Batch(requests, anchor_ids, targets, plain_rows=plain_rows)

    def _candidates(self, tuples: Sequence[TrainingTuple]) -> list[_Candidate]:
        if self.options.candidates_from_batch:
            return [_Candidate(t.anchor, owner=-1, is_positive=False) for t in tuples]
        return [
            _Candidate(id_, owner, is_positive)
            for owner, t in enumerate(tuples)
            for ids, is_positive in ((t.positives, True), (t.hard, False), (t.soft, False))
            for id_ in ids
        ]

    def _numbers(self, ids: Sequence[str]) -> Tensor:
        """Int (len(ids),), the records' numbers."""
        return torch.tensor([self._number[id_] for id_ in ids], dtype=torch.long)

    def _requests(
        self, ids: Sequence[str], modes: Sequence[TrainQueryMode | TrainDocumentMode], role: Role
    ) -> list[Request]:
        """All records in the first mode, then all in the next."""
        return [
            training_request(self._records[id_], mode, role, self.options.mask)
            for mode in modes
            for id_ in ids
        ]

    def _positive_weights(self, num_anchors: int, candidate_ids: Sequence[str]) -> Tensor | None:
        """(B, M), each candidate's weight as a positive; None where all weigh the same."""
        by_usage = self.options.positive_weights
        if not by_usage:
            return None
        weights = [by_usage.get(self._records[id_].usage, 1.0) for id_ in candidate_ids]
        return torch.tensor(weights).expand(num_anchors, -1)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """Mean over query modes (weighted) and document modes of the InfoNCE loss."""
        targets: _Targets = batch.targets
        masks = targets.masks.to(embeddings.device)
        positive_weights = targets.positive_weights
        if positive_weights is not None:
            positive_weights = positive_weights.to(embeddings.device)
        num_query_modes, num_document_modes = len(self.options.query_modes), len(self.options.document_modes)
        first_candidate = targets.num_anchors * num_query_modes
        queries_by_mode = embeddings[:first_candidate].chunk(num_query_modes)  # (B, D) each
        documents_by_mode = embeddings[first_candidate:].chunk(num_document_modes)  # (M, D) each
        terms = [
            weight * self._loss(queries, documents, masks, positive_weights)
            for queries, weight in zip(queries_by_mode, self.query_weights, strict=True)
            for documents in documents_by_mode
        ]
        total_weight = sum(self.query_weights) * num_document_modes
        return ObjectiveLoss(
            torch.stack(terms).sum() / total_weight, {"false_negatives": float(masks.num_false_negatives)}
        )
