"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CandidateMasks, InfoNCELoss, candidate_masks
from idiomloss.candidates import FalseNegatives, InBatch
from train.data.idiolink import Document, Split, document_request, query_request
from train.data.tuples import TrainingTuple
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.scorekeys import QueryMode


@dataclass(frozen=True)
class _Plan:
    """Rows of the embeddings: first the anchors, mode by mode, then the candidates."""

    num_anchors: int
    masks: CandidateMasks


class IdioLinkObjective:
    """Fine-tunes on training tuples, one an anchor.

    Args:
        split: the training split.
        tuples: epoch → one tuple an anchor, in the order of `anchors`. Tuples without positives are
            left out (`num_skipped`).
        query_modes: how anchors are embedded; with several, the loss is the mean over modes, and
            modes that read the same text share its forward pass.
        loss: InfoNCE with its options.
        batch_size: anchors an optimizer step.
        seed: of the order of anchors.
        in_batch: which candidates of other anchors are negatives.
        false_negatives: what becomes of those with the anchor's own idiom and meaning.
        drop_last: leave out the last batch of an epoch where it is not full.
        extra_files: files beside the split's that were read (the released tuples).

    Raises:
        UserError: if no anchor has a positive, or `drop_last` leaves no batch.
    """

    def __init__(
        self,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]],
        *,
        query_modes: Sequence[QueryMode],
        loss: InfoNCELoss,
        batch_size: int,
        seed: int,
        in_batch: InBatch = "positives",
        false_negatives: FalseNegatives = "positive",
        drop_last: bool = False,
        extra_files: Sequence[Path] = (),
    ) -> None:
        self._records = {r.id: r for r in (*split.documents, *split.queries)}
        self._tuples = tuples
        self._epoch_tuples: tuple[int, list[TrainingTuple]] | None = None
        self._loss = loss
        self.query_modes = tuple(query_modes)
        self.batch_size = batch_size
        self.seed = seed
        self.in_batch: InBatch = in_batch
        self.false_negatives: FalseNegatives = false_negatives
        self.drop_last = drop_last
        self.files = [*split.files, *extra_files]
        self.modules = nn.Module()  # trains nothing beside the encoder

        drawn = tuples(0)
        self._usable = [i for i, t in enumerate(drawn) if t.positives]
        self.num_skipped = len(drawn) - len(self._usable)
        if not self._usable:
            raise UserError(f"training split {split.name}: no anchor has a positive document")
        if drop_last and len(self._usable) < batch_size:
            raise UserError(
                f"training split {split.name} has {len(self._usable)} anchors, fewer than "
                f"trainer.batch_size={batch_size}, and objective.drop_last leaves out every batch that "
                "is not full: lower the batch size or set objective.drop_last=false"
            )
        idioms = {d.idiom: i for i, d in enumerate(self._records.values())}
        self._labels = {
            id_: (idioms[r.idiom], int(r.meaning == "idiomatic")) for id_, r in self._records.items()
        }
        self._numbers = {id_: i for i, id_ in enumerate(self._records)}

    def describe(self) -> str:
        """One line for the log."""
        idioms = {self._labels[t.anchor][0] for t in self._tuples(0)}
        skipped = f", {self.num_skipped} without a positive left out" if self.num_skipped else ""
        return (
            f"{len(self._usable)} anchors of {len(idioms)} idioms{skipped}; "
            f"queries as {' and '.join(self.query_modes)}"
        )

    def plan(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all anchors in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        order = rng.permutation(self._usable).tolist()
        steps = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        if self.drop_last and len(steps[-1]) < self.batch_size:
            steps.pop()
        return [[part.tolist() for part in np.array_split(step, shards) if len(part)] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests and masks of these anchors."""
        if self._epoch_tuples is None or self._epoch_tuples[0] != epoch:
            self._epoch_tuples = epoch, self._tuples(epoch)
        chosen = [self._epoch_tuples[1][i] for i in anchors]
        anchor_ids = [t.anchor for t in chosen]
        candidate_ids: list[str] = []
        owner: list[int] = []
        is_positive: list[bool] = []
        for number, t in enumerate(chosen):
            of_tuple = (*t.positives, *t.hard, *t.soft)
            candidate_ids += of_tuple
            owner += [number] * len(of_tuple)
            is_positive += [True] * len(t.positives) + [False] * (len(t.hard) + len(t.soft))
        masks = candidate_masks(
            len(anchor_ids),
            torch.tensor(owner),
            torch.tensor(is_positive),
            anchor_labels=torch.tensor([self._labels[i] for i in anchor_ids]),
            candidate_labels=torch.tensor([self._labels[i] for i in candidate_ids]),
            anchor_ids=torch.tensor([self._numbers[i] for i in anchor_ids]),
            candidate_ids=torch.tensor([self._numbers[i] for i in candidate_ids]),
            in_batch=self.in_batch,
            false_negatives=self.false_negatives,
        )
        records: list[Document] = [self._records[i] for i in anchor_ids]
        requests = [query_request(r, mode) for mode in self.query_modes for r in records]
        requests += [document_request(self._records[i]) for i in candidate_ids]
        return Batch(requests, anchor_ids, _Plan(len(anchor_ids), masks))

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """Mean over query modes of the InfoNCE loss."""
        plan: _Plan = batch.plan
        masks = plan.masks.to(embeddings.device)
        size = plan.num_anchors
        candidates = embeddings[size * len(self.query_modes) :]
        per_mode = [
            self._loss(embeddings[size * i : size * (i + 1)], candidates, masks)
            for i in range(len(self.query_modes))
        ]
        return ObjectiveLoss(
            torch.stack(per_mode).mean(),
            {"false_negatives": float(masks.num_false_negatives)},
        )
