"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CandidateMasks, InfoNCELoss, candidate_masks
from idiomloss.candidates import FalseNegatives, InBatch
from train.data.idiolink import Document, Split, document_request, training_request
from train.data.tuples import TrainingTuple
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss, SpecialToken
from train.objectives.steps import balanced_steps, shuffled_steps
from train.requests import Request
from train.scores import TrainDocumentMode, TrainQueryMode


@dataclass(frozen=True)
class _Plan:
    """Rows of the embeddings: first the anchors, mode by mode, then the candidates, mode by mode.

    `positive_weights` is (B, M), or None where all weigh the same.
    """

    num_anchors: int
    masks: CandidateMasks
    positive_weights: Tensor | None


class IdioLinkObjective:
    """Fine-tunes on training tuples, one an anchor, or on the sentences of a batch against each other.

    Args:
        split: the training split.
        tuples: epoch → one tuple an anchor. Tuples without positives are left out (`num_skipped`).
            With `candidates_from_batch` the tuples say what the anchors are, and the candidates of each
            are all the other anchors of its micro-batch.
        query_modes: how anchors are embedded; with several, the loss is the mean over modes, and
            modes that read the same text share its forward pass.
        query_weights: weights of the query modes in that mean; None = equal ones.
        document_modes: how candidates are embedded; with several, the loss is the mean over them too.
        mask: what stands for a hidden span in the modes that hide it.
        loss: InfoNCE with its options.
        batch_size: anchors an optimizer step.
        seed: of the order of anchors.
        in_batch: which candidates of other anchors are negatives.
        false_negatives: what becomes of those with the anchor's own idiom and meaning.
        idioms_per_batch: make steps of that many idioms with equally many anchors; None = shuffled.
        positive_weights: weight of a positive by its usage; None = all the same.
        plain_usages: documents without the idiom, by usage: those of `plain_requests`.
        drop_last: leave out the last batch of an epoch where it is not full.
        extra_files: files beside the split's that were read (released tuples, external data).
        note: what is to be said of the data beside the counts.
        idiom_sentences: the split's sentences with their idiom, as (idiom, sentence).

    Raises:
        UserError: if no anchor has a positive, or `drop_last` leaves no batch.
    """

    def __init__(
        self,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]],
        *,
        query_modes: Sequence[TrainQueryMode],
        loss: InfoNCELoss,
        batch_size: int,
        seed: int,
        query_weights: Sequence[float] | None,
        document_modes: Sequence[TrainDocumentMode],
        mask: str,
        in_batch: InBatch,
        false_negatives: FalseNegatives,
        candidates_from_batch: bool,
        idioms_per_batch: int | None,
        positive_weights: Mapping[str, float] | None,
        plain_usages: Sequence[str],
        drop_last: bool,
        extra_files: Sequence[Path] = (),
        note: str = "",
        idiom_sentences: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._records: dict[str, Document] = {r.id: r for r in (*split.documents, *split.queries)}
        self._tuples = tuples
        self._epoch_tuples: tuple[int, list[TrainingTuple]] | None = None
        self._loss = loss
        self.query_modes = tuple(query_modes)
        self.query_weights = tuple(query_weights or [1.0] * len(self.query_modes))
        self.document_modes = tuple(document_modes)
        self.mask = mask
        self.batch_size = batch_size
        self.seed = seed
        self.in_batch: InBatch = in_batch
        self.false_negatives: FalseNegatives = false_negatives
        self.candidates_from_batch = candidates_from_batch
        self.idioms_per_batch = idioms_per_batch
        self.positive_weights = dict(positive_weights or {})
        self.drop_last = drop_last
        self.files = [*split.files, *extra_files]
        self.note = note
        self.idiom_sentences = list(idiom_sentences)
        self.modules = nn.Module()  # trains nothing beside the encoder

        drawn = tuples(0)
        self._anchors = [self._records[t.anchor] for t in drawn]
        alike = Counter((r.idiom, r.meaning) for r in self._anchors)
        self._usable = [
            i
            for i, (t, r) in enumerate(zip(drawn, self._anchors, strict=True))
            if (alike[r.idiom, r.meaning] > 1 if candidates_from_batch else t.positives)
        ]
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
        without = [r for r in self._records.values() if r.usage in plain_usages]
        self.plain_requests: list[Request] = [document_request(record) for record in without]
        self._plain = set(self.plain_requests)

    @property
    def special_tokens(self) -> Mapping[SpecialToken, str]:
        """The mask, if a mode hides spans by it."""
        modes = (*self.query_modes, *self.document_modes)
        return {"mask": self.mask} if any(mode.startswith("masked_") for mode in modes) else {}

    def describe(self) -> str:
        """One line for the log."""
        idioms = {self._anchors[i].idiom for i in self._usable}
        skipped = f", {self.num_skipped} without a positive left out" if self.num_skipped else ""
        if self.idioms_per_batch is not None and self.idioms_per_batch > len(idioms):
            skipped += f", fewer than the {self.idioms_per_batch} that a batch can hold"
        return (
            f"{len(self._usable)} anchors of {len(idioms)} idioms{skipped}; "
            f"queries as {' and '.join(self.query_modes)}" + (f"; {self.note}" if self.note else "")
        )

    def plan(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all anchors in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        if self.idioms_per_batch is None:
            steps = shuffled_steps(self._usable, self.batch_size, rng)
        else:
            classes = {i: (self._anchors[i].idiom, self._anchors[i].usage) for i in self._usable}
            steps = balanced_steps(self._usable, self.batch_size, self.idioms_per_batch, classes, rng)
        if self.drop_last:
            steps = [step for step in steps if len(step) == self.batch_size]
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
        if self.candidates_from_batch:
            candidate_ids = anchor_ids
            owner, is_positive = [-1] * len(anchor_ids), [False] * len(anchor_ids)
        else:
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
        weights = None
        if self.positive_weights:
            of_candidates = [self.positive_weights.get(self._records[i].usage, 1.0) for i in candidate_ids]
            weights = torch.tensor(of_candidates).expand(len(anchor_ids), -1)
        requests: list[Request] = []
        for mode in self.query_modes:
            requests += [training_request(self._records[i], mode, "query", self.mask) for i in anchor_ids]
        for kind in self.document_modes:
            requests += [
                training_request(self._records[i], kind, "document", self.mask) for i in candidate_ids
            ]
        plan = _Plan(len(anchor_ids), masks, weights)
        plain = [i for i, request in enumerate(requests) if request in self._plain]
        return Batch(requests, anchor_ids, plan, plain_rows=plain)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """Mean over query modes (weighted) and document modes of the InfoNCE loss."""
        plan: _Plan = batch.plan
        masks = plan.masks.to(embeddings.device)
        weights = None if plan.positive_weights is None else plan.positive_weights.to(embeddings.device)
        queries = embeddings[: plan.num_anchors * len(self.query_modes)].chunk(len(self.query_modes))
        documents = embeddings[plan.num_anchors * len(self.query_modes) :].chunk(len(self.document_modes))
        terms = [
            share * self._loss(of_mode, candidates, masks, weights)
            for of_mode, share in zip(queries, self.query_weights, strict=True)
            for candidates in documents
        ]
        total = sum(self.query_weights) * len(self.document_modes)
        return ObjectiveLoss(
            torch.stack(terms).sum() / total,
            {"false_negatives": float(masks.num_false_negatives)},
        )
