"""A user's own labelled sentences, by mined triplets: those of one label are alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import AdaptiveTripletLoss, GroupLabels, group_steps
from train.data.own.store import Examples
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.adaptive_triplet import why_no_triplet
from train.objectives.own_scored import own_request
from train.objectives.steps import balanced_steps, in_order_steps, in_shards
from train.requests import Request


class LabelledObjective:
    """Every row is a sentence with a label.

    Sentences of a group (the column `group`) stay together in a batch, each group whole. Where there are no
    groups, a batch has equally many sentences of several labels.

    Args:
        examples: of the form `sentences`, with labels.
        loss: the adaptive triplet loss with its options.
        batch_size: sentences an optimizer step, at most.
        seed: of their order.
        shuffled: draw a new order each epoch, instead of the file's (with groups).
        per_label: sentences of a label in a batch (without groups); divides `batch_size`.
        files: the data files that were read.

    Raises:
        UserError: if a group is larger than a batch, or a batch does not hold `per_label` sentences of two
            labels.
    """

    plain_requests: Sequence[Request] = ()

    def __init__(
        self,
        examples: Examples,
        loss: AdaptiveTripletLoss,
        *,
        batch_size: int,
        seed: int,
        shuffled: bool,
        per_label: int,
        files: Sequence[Path] = (),
    ) -> None:
        self._examples = examples
        self._loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.shuffled = shuffled
        self.files = list(files)
        self.modules = nn.Module()  # trains nothing beside the encoder
        store = examples.store
        self._labels = np.unique(store.label_ids[examples.rows], return_inverse=True)[1]
        self._per_label = None if store.has_groups else per_label
        if not store.has_groups and (batch_size % per_label or batch_size == per_label):
            raise UserError(
                f"trainer.batch_size={batch_size} sentences are not objective.per_label={per_label} of each "
                "of two labels or more: choose a batch size that is a multiple, and at least twice as many"
            )
        groups = store.groups[examples.rows] if store.has_groups else np.zeros(len(examples), dtype=np.int64)
        _, first, self._group = np.unique(groups, return_index=True, return_inverse=True)
        # Groups are numbered in the file's order.
        self._group = np.argsort(np.argsort(first))[self._group]
        self._members = (
            [np.flatnonzero(self._group == g).tolist() for g in range(len(first))] if store.has_groups else []
        )
        if self._members:
            largest = max(self._members, key=len)
            if len(largest) > batch_size:
                raise UserError(
                    f"trainer.batch_size={batch_size} sentences a step cannot hold the group of "
                    f"{examples.names(largest[:1])[0]}, which has {len(largest)}: a group is never cut in two"
                )

    def describe(self) -> str:
        """One line for the log."""
        counts = np.bincount(self._labels)
        groups = f" in {len(self._members)} groups" if self._members else ""
        return (
            f"{len(self._examples)} sentences{groups} of {len(counts)} labels, {int((counts == 1).sum())} of "
            f"them with one sentence"
        )

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:
        """(What its span says, sentence) of each sentence with a span."""
        return self._examples.marked()

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, each cut between groups or labels."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        if self._per_label is not None:
            classes = {i: (label, "") for i, label in enumerate(self._labels.tolist())}
            labels_per_batch = self.batch_size // self._per_label
            steps = balanced_steps(
                range(len(self._examples)), self.batch_size, labels_per_batch, classes, rng
            )
            return in_shards(steps, shards)
        sizes = [len(members) for members in self._members]
        steps = (
            group_steps(sizes, self.batch_size, rng)
            if self.shuffled
            else in_order_steps(sizes, self.batch_size)
        )
        return in_shards(steps, shards, self._members)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests and labels of these sentences."""
        store = self._examples.store
        requests = [own_request(store, text) for text in self._examples.anchors[list(anchors)].tolist()]
        groups = self._group[list(anchors)]
        is_first = np.concatenate([[True], groups[1:] != groups[:-1]])
        labels = GroupLabels(
            torch.from_numpy(self._labels[list(anchors)]),
            torch.from_numpy(groups),
            torch.from_numpy(is_first),
        )
        why = why_no_triplet(self._loss, labels, "objective.triplet")
        return Batch(requests, self._examples.names(anchors), labels, empty_because=why)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the batch's mined triplets."""
        labels: GroupLabels = batch.targets
        result = self._loss(embeddings, labels.to(embeddings.device))
        counts = {"triplets_within": float(result.num_within), "triplets_across": float(result.num_across)}
        return ObjectiveLoss(result.loss, counts, is_empty=result.is_empty)
