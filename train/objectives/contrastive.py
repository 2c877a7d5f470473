"""Contrastive training by InfoNCE: anchors against candidates, whatever data they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CandidateMasks, candidate_masks
from idiomloss.candidates import FalseNegatives, InBatch
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.shared import ContrastiveData, ContrastiveOptions
from train.objectives.steps import balanced_steps, in_shards, shuffled_steps
from train.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Candidate(NamedTuple):
    """A record that anchors of a batch are compared with.

    Attributes:
        record: its number.
        owner: the anchor for which it was drawn, by its position in the batch; -1 = none in particular.
        is_positive: whether it was drawn as its owner's positive.
    """

    record: int
    owner: int
    is_positive: bool


@dataclass(frozen=True)
class _Targets:
    """A batch of B anchors and M candidates.

    Its requests are the anchors, mode by mode, then the candidates, mode by mode.

    Attributes:
        masks: which pairs are positive, negative and hard, each (B, M).
        positive_weights: (B, M), or None where all weigh the same.
        anchor_weights: (B,), or None where all weigh the same.
    """

    num_anchors: int
    masks: CandidateMasks
    positive_weights: Tensor | None
    anchor_weights: Tensor | None


class ContrastiveObjective:
    """Anchors against their own candidates and those of others, or against each other.

    With several query modes the loss is their weighted mean, with several document modes their mean; modes
    that read the same text share its forward pass.

    Args:
        data: anchors without a positive are left out (`num_skipped`).
        options: of loss, batches and modes.
        batch_size: anchors an optimizer step.
        seed: of the order of anchors.
        note: what the log says of the data in addition to the counts.

    Raises:
        UserError: if no anchor has a positive, or `drop_last` leaves no batch.
    """

    def __init__(
        self,
        data: ContrastiveData,
        options: ContrastiveOptions,
        *,
        batch_size: int,
        seed: int,
        note: str = "",
    ) -> None:
        section = options.infonce_section
        self.data = data
        self.options = options
        self.batch_size = batch_size
        self.seed = seed
        self.note = note
        self.query_modes, self.document_modes = options.query_mode or (), options.document_mode or ()
        self.query_weights = options.query_weights or [1.0] * len(self.query_modes)
        self.in_batch: InBatch = "all" if data.from_batch else section.in_batch
        self.false_negatives: FalseNegatives = "positive" if data.from_batch else section.false_negatives
        self._loss = section.build()
        self._anchors = np.asarray(data.anchors)
        self._labels, self._ids = torch.as_tensor(data.labels), torch.as_tensor(data.ids)
        self.files = data.files
        self.modules = nn.Module()  # trains nothing in addition to the encoder
        self.usages = data.usages
        self._usage_weights = options.usage_weights
        self._usable = self._anchors_with_positives()
        self.num_skipped = len(self._anchors) - len(self._usable)
        if not len(self._usable):
            raise UserError(f"{data.name}: no anchor has a positive")
        if options.drop_last and len(self._usable) < batch_size:
            raise UserError(
                f"{data.name} has {len(self._usable)} anchors, fewer than trainer.batch_size={batch_size}, "
                "and objective.drop_last leaves out every batch that is not full: lower the batch size or "
                "set objective.drop_last=false"
            )

    def _anchors_with_positives(self) -> NDArray[np.int64]:
        """Numbers of the anchors that have a positive: of their own, or among the other anchors."""
        if not self.data.from_batch:
            numbers = range(len(self._anchors))
            return np.array([i for i in numbers if len(self.data.candidates(0, i)[0])], dtype=np.int64)
        labels = self._labels.numpy()[self._anchors]  # (A, 2)
        _, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        return np.flatnonzero(counts[which.ravel()] > 1)

    @property
    def plain_requests(self) -> Sequence[Request]:
        """Every request that a batch's `plain_rows` can name."""
        return self.data.plain_requests

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:
        """Training sentences with an expression, as (expression, sentence)."""
        return self.data.idiom_sentences

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The mask, if a mode hides spans by it."""
        modes = (*self.query_modes, *self.document_modes)
        return {"mask": self.options.mask} if any(mode.startswith("masked_") for mode in modes) else {}

    def describe(self) -> str:
        """One line for the log."""
        anchors = self._anchors[self._usable]
        num_groups = len(np.unique(self._labels.numpy()[anchors, 0]))
        groups = f" of {num_groups} {self.data.groups_name}" if self.data.groups_name else ""
        groups_per_batch = self.options.num_groups
        skipped = f", {self.num_skipped} without a positive left out" if self.num_skipped else ""
        if groups_per_batch is not None and groups_per_batch > num_groups:
            skipped += f", fewer than the {groups_per_batch} that a batch can hold"
        return (
            f"{len(self._usable)} anchors{groups}{skipped}; "
            f"queries as {' and '.join(self.query_modes)}" + (f"; {self.note}" if self.note else "")
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all anchors in an order drawn from seed and epoch, then cut."""
        groups_per_batch = self.options.num_groups
        rng = np.random.default_rng([self.seed, epoch, 0])
        if groups_per_batch is None:
            steps = shuffled_steps(self._usable, self.batch_size, rng)
        else:
            anchors = self._usable.tolist()
            records = self._anchors[self._usable].tolist()
            groups = self._labels[records, 0].tolist()
            classes = {
                anchor: (group, self.data.usage(record))
                for anchor, group, record in zip(anchors, groups, records, strict=True)
            }
            steps = balanced_steps(anchors, self.batch_size, groups_per_batch, classes, rng)
        if self.options.drop_last:
            steps = [step for step in steps if len(step) == self.batch_size]
        return in_shards(steps, shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests and masks of these anchors."""
        data = self.data
        anchor_records = self._anchors[list(anchors)].tolist()  # B
        candidates = self._candidates(epoch, anchors, anchor_records)  # M
        candidate_records = [candidate.record for candidate in candidates]
        masks = candidate_masks(
            len(anchor_records),
            torch.tensor([candidate.owner for candidate in candidates]),  # (M,)
            torch.tensor([candidate.is_positive for candidate in candidates]),  # (M,)
            anchor_labels=self._labels[anchor_records],  # (B, 2)
            candidate_labels=self._labels[candidate_records],  # (M, 2)
            anchor_ids=self._ids[anchor_records],  # (B,)
            candidate_ids=self._ids[candidate_records],  # (M,)
            in_batch=self.in_batch,
            false_negatives=self.false_negatives,
        )
        requests = [
            *self._requests(anchor_records, self.query_modes, "query"),
            *self._requests(candidate_records, self.document_modes, "document"),
        ]
        # A positive that is its anchor's own text is read once more, with dropout of its own, as SimCSE does.
        is_itself = self._ids[anchor_records][:, None] == self._ids[candidate_records]
        again = (masks.positive & is_itself).any(0).repeat(len(self.document_modes))  # as many as requests
        for i in (again.nonzero() + len(anchor_records) * len(self.query_modes)).flatten().tolist():
            requests[i] = replace(requests[i], view=1)
        targets = _Targets(
            len(anchor_records),
            masks,
            self._positive_weights(len(anchor_records), candidate_records),
            None if data.weights is None else torch.from_numpy(data.weights[list(anchors)]).float(),
        )
        plain_rows = [row for row, request in enumerate(requests) if data.is_plain(request)]
        names = [data.record_name(record) for record in anchor_records]
        first = len(anchor_records) * len(self.query_modes)  # row of the first candidate
        pairs = [(anchor, first + candidate) for anchor, candidate in masks.positive.nonzero().tolist()]
        return Batch(requests, names, targets, plain_rows, self._why_empty(targets), pairs)

    def _why_empty(self, targets: _Targets) -> str:
        """Why no anchor of a batch has anything to learn from, with what to do; "" where one has."""
        masks, loss, section = targets.masks, self._loss, f"objective.{self.options.loss_option}"
        positive, weights = masks.positive, targets.anchor_weights
        if targets.positive_weights is not None:
            positive = positive & (targets.positive_weights > 0)
        has_weight = positive.any(1) if weights is None else positive.any(1) & (weights > 0)
        negative = masks.negative & (torch.where(masks.hard, loss.hard_weight, loss.soft_weight) > 0)
        compete = (masks.positive.sum(1) > 1) & (loss.denominator == "all_positives")
        if (has_weight & (negative.any(1) | compete)).any():
            return ""
        if masks.positive.any() and not has_weight.any():
            return "the weights are 0: raise some in the column weight, or in objective.positive_weights"
        if masks.negative.any() and not negative.any():
            return f"the negatives have the weight 0: raise {section}.hard_weight or {section}.soft_weight"
        if targets.num_anchors == 1:
            return "one anchor has no negatives: raise trainer.batch_size or lower trainer.accumulation"
        if self.in_batch == "none":
            return f"no anchor has negatives: set {section}.in_batch to positives or all, or add some"
        return "no anchor has both a positive and a negative: the data need more different texts or groups"

    def _candidates(
        self, epoch: int, anchors: Sequence[int], anchor_records: Sequence[int]
    ) -> list[_Candidate]:
        if self.data.from_batch:
            return [_Candidate(record, owner=-1, is_positive=False) for record in anchor_records]
        return [
            _Candidate(record, owner, is_positive)
            for owner, anchor in enumerate(anchors)
            for records, is_positive in zip(self.data.candidates(epoch, anchor), (True, False), strict=True)
            for record in records
        ]

    def _requests(self, records: Sequence[int], modes: Sequence[str], role: Role) -> list[Request]:
        """All records in the first mode, then all in the next."""
        return [
            self.data.request(record, mode, role, self.options.mask) for mode in modes for record in records
        ]

    def _positive_weights(self, num_anchors: int, candidate_records: Sequence[int]) -> Tensor | None:
        """(B, M), each candidate's weight as a positive; None where all weigh the same."""
        if not self._usage_weights:
            return None
        weights = [self._usage_weights.get(self.data.usage(record), 1.0) for record in candidate_records]
        return torch.tensor(weights).expand(num_anchors, -1)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """Mean over query modes (weighted) and document modes of the InfoNCE loss."""
        targets: _Targets = batch.targets
        masks = targets.masks.to(embeddings.device)
        positive_weights, anchor_weights = (
            None if weights is None else weights.to(embeddings.device)
            for weights in (targets.positive_weights, targets.anchor_weights)
        )
        num_query_modes, num_document_modes = len(self.query_modes), len(self.document_modes)
        first_candidate = targets.num_anchors * num_query_modes
        queries_by_mode = embeddings[:first_candidate].chunk(num_query_modes)  # (B, D) each
        documents_by_mode = embeddings[first_candidate:].chunk(num_document_modes)  # (M, D) each
        terms = [
            weight * self._loss(queries, documents, masks, positive_weights, anchor_weights)
            for queries, weight in zip(queries_by_mode, self.query_weights, strict=True)
            for documents in documents_by_mode
        ]
        total_weight = sum(self.query_weights) * num_document_modes
        counts = {"false_negatives": float(masks.num_false_negatives)}
        loss = torch.stack(terms).sum() / total_weight
        return ObjectiveLoss(loss, counts, is_empty=bool(batch.empty_because))
