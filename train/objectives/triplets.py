"""Labelled sentences by mined triplets: those of one label are alike, and groups of them stay together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import AdaptiveTripletLoss, GroupLabels, group_steps
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.steps import balanced_steps, in_order_steps, in_shards
from train.requests import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Sentences:
    """Sentences, by number.

    Attributes:
        labels: int (N,), equal for those that are alike.
        groups: int (N,), numbered in the order of their first sentences; None if there are no groups.
        request: how a sentence is embedded.
        names: of sentences, for messages.
        summary: of all of them, for the log.
        idiom_sentences: (expression, sentence) of each sentence with one; read when it is called.
        files: that were read.
        expressions: of each group, in lower case, where it is known.
        plain_requests: sentences without an expression, which are not the first ones of their groups.
    """

    labels: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    request: Callable[[int], Request]
    names: Callable[[Sequence[int]], list[str]]
    summary: str
    idiom_sentences: Callable[[], Sequence[tuple[str, str]]]
    files: Sequence[Path]
    expressions: Sequence[str] = ()
    plain_requests: Sequence[Request] = ()


class TripletObjective:
    """Every sentence is an anchor, and comes once an epoch.

    Sentences of a group stay together in a batch, unless groups may be cut. If there are no groups, a batch
    has equally many sentences of several labels.

    Args:
        loss: the adaptive triplet loss with its options.
        section: of the options of the loss, for messages.
        batch_size: sentences an optimizer step, at most.
        seed: of their order.
        shuffled: draw a new order of groups each epoch, instead of the file's.
        whole_groups: never split a group. Otherwise each step has exactly `batch_size` sentences in the
            file's order (the last one the rest), and the triplets of a group that is cut are lost.
        per_expression: at most this many groups of an expression an epoch, and the next ones in the next
            epoch, so that expressions with many groups do not dominate. None = all groups.
        per_label: sentences of a label in a batch (without groups); divides `batch_size`.

    Raises:
        UserError: if a group that must not be split is larger than a batch, or a batch does not hold
            `per_label` sentences of two labels.
    """

    def __init__(
        self,
        sentences: Sentences,
        loss: AdaptiveTripletLoss,
        section: str,
        *,
        batch_size: int,
        seed: int,
        shuffled: bool,
        whole_groups: bool = True,
        per_expression: int | None = None,
        per_label: int = 1,
    ) -> None:
        self.sentences = sentences
        self.batch_size = batch_size
        self.seed = seed
        self.shuffled = shuffled
        self.files = list(sentences.files)
        self.plain_requests = sentences.plain_requests
        self.modules = nn.Module()  # trains nothing in addition to the encoder
        self._loss, self._section = loss, section
        self._whole_groups = whole_groups
        self._per_expression, self._per_label = per_expression, per_label
        has_groups, num = sentences.groups is not None, len(sentences.labels)
        self._groups = np.zeros(num, dtype=np.int64) if sentences.groups is None else sentences.groups
        order = np.argsort(self._groups, kind="stable")
        self._members = [m.tolist() for m in np.split(order, np.cumsum(np.bincount(self._groups))[:-1])]
        self._is_first = np.zeros(num, dtype=bool)
        self._is_first[[members[0] for members in self._members]] = True
        largest = max(self._members, key=len)
        if has_groups and whole_groups and len(largest) > batch_size:
            raise UserError(
                f"trainer.batch_size={batch_size} sentences a step cannot hold the group of "
                f"{sentences.names(largest)[0]}, which has {len(largest)}: a group is never cut in two"
            )
        if not has_groups and (batch_size % per_label or batch_size == per_label):
            raise UserError(
                f"trainer.batch_size={batch_size} sentences are not objective.per_label={per_label} of each "
                "of two labels or more: choose a batch size that is a multiple, and at least twice as many"
            )
        rng = np.random.default_rng([seed, 3])
        by_expression: dict[str, list[int]] = {}
        for number, expression in enumerate(sentences.expressions):
            by_expression.setdefault(expression, []).append(number)
        self._by_expression = [rng.permutation(numbers).tolist() for numbers in by_expression.values()]

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:
        """(Expression, sentence) of each sentence with an expression."""
        return self.sentences.idiom_sentences()

    def describe(self) -> str:
        """One line for the log."""
        limit = self._per_expression
        return self.sentences.summary + (f"; {limit} groups of an expression an epoch" if limit else "")

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, equally many in every epoch, each cut between groups (or labels)."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        num, size = len(self.sentences.labels), self.batch_size
        if self.sentences.groups is None:
            classes = {i: (label, "") for i, label in enumerate(self.sentences.labels.tolist())}
            steps = balanced_steps(range(num), size, size // self._per_label, classes, rng)
            return in_shards(steps, shards)
        if not self._whole_groups:
            return in_shards([range(i, min(i + size, num)) for i in range(0, num, size)], shards)
        sizes = [len(members) for members in self._members]
        if self._per_expression is not None:
            steps = self._steps_by_expression(sizes, self._per_expression, epoch, rng)
        elif self.shuffled:
            steps = group_steps(sizes, size, rng)
        else:
            steps = in_order_steps(sizes, size)
        return in_shards(steps, shards, self._members)

    def _steps_by_expression(
        self, sizes: Sequence[int], limit: int, epoch: int, rng: np.random.Generator
    ) -> list[list[int]]:
        """Steps of at most `limit` groups of each expression, other ones each epoch; always as many steps."""
        max_sentences = 0  # that any epoch's groups have
        chosen: list[int] = []
        for numbers in self._by_expression:
            max_sentences += sum(sorted(sizes[n] for n in numbers)[-limit:])
            chosen += [numbers[(epoch * limit + i) % len(numbers)] for i in range(min(limit, len(numbers)))]
        # Enough steps for any choice: if one was too full for a group, all would be, and hold more than all.
        room = self.batch_size - max(sizes) + 1
        num_steps = min(-(-max_sentences // room), len(chosen))
        steps = group_steps([sizes[n] for n in chosen], self.batch_size, rng, num_steps=num_steps)
        return [[chosen[i] for i in step] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests and labels of these sentences."""
        numbers = list(anchors)
        in_one_group = np.arange(len(numbers)) == 0
        is_first = in_one_group if self.sentences.groups is None else self._is_first[numbers]
        labels = GroupLabels(
            torch.from_numpy(self.sentences.labels[numbers]),
            torch.from_numpy(self._groups[numbers]),
            torch.from_numpy(is_first),
        )
        return Batch(
            [self.sentences.request(n) for n in numbers],
            self.sentences.names(numbers),
            labels,
            plain_rows=np.flatnonzero(~is_first).tolist() if self.plain_requests else (),
            empty_because=self._why_no_triplet(labels),
        )

    def _why_no_triplet(self, labels: GroupLabels) -> str:
        """Why a batch of these texts has nothing to learn from, with what to do; "" where it has."""
        loss, section = self._loss, self._section
        if loss.can_learn(labels):
            return ""
        if loss.mines_in_vain:
            return (
                f"{section}.triplets={loss.triplets} mines triplets that keep the loss's margin: choose all"
            )
        if not loss.triplet_weight:
            return (
                f"there is no term with a weight and something to learn from: raise {section}.triplet_weight"
            )
        scope = f", or {section}.scope=all" if loss.scope == "within" else ""
        return (
            "a batch needs two sentences of one label and one of another: raise trainer.batch_size, or "
            f"choose objective.order=shuffled{scope}"
        )

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the batch's mined triplets."""
        labels: GroupLabels = batch.targets
        result = self._loss(embeddings, labels.to(embeddings.device))
        counts = {
            "triplets_possible": float(_num_triplets(labels)),
            "triplets_within": float(result.num_within),
            "triplets_across": float(result.num_across),
        }
        return ObjectiveLoss(result.loss, counts, is_empty=result.is_empty)


def _num_triplets(labels: GroupLabels) -> int:
    """The number of triplets within the groups."""
    sizes = Counter(labels.groups.tolist())
    alike = Counter(zip(labels.groups.tolist(), labels.labels.tolist(), strict=True))
    return sum(k * (k - 1) * (sizes[group] - k) for (group, _), k in alike.items())
