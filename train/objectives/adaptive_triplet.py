"""Adaptive triplet: sentences with idioms and their paraphrases, by mined triplets of whole groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from idiomloss import AdaptiveTripletLoss, GroupLabels, group_steps, label_groups
from train.data.semeval2022 import Group
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.steps import in_order_steps, in_shards
from train.requests import Request


class AdaptiveTripletObjective:
    """Fine-tunes on relabelled groups; every sentence of a group is an anchor.

    Args:
        groups: the training data.
        loss: the adaptive triplet loss with its options.
        batch_size: sentences an optimizer step, at most.
        seed: of the order of groups.
        shuffled: draw a new order of groups each epoch, instead of the file's.
        whole_groups: never split a group. Otherwise each step has exactly `batch_size` sentences in the
            file's order (the last one the rest), and the triplets of a group that is cut are lost.
        only_usable: leave out groups without an incorrect (or without a correct) paraphrase
            (`num_skipped`), which give no triplet by themselves.
        per_expression: at most so many groups of an expression an epoch, and the next ones in the next
            epoch, so that expressions with many groups do not dominate. None = all groups.
        files: the data files that were read.

    Raises:
        UserError: if no group is left, or one that must not be split is larger than a batch.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        loss: AdaptiveTripletLoss,
        *,
        batch_size: int,
        seed: int,
        shuffled: bool,
        whole_groups: bool,
        only_usable: bool,
        per_expression: int | None,
        files: Sequence[Path] = (),
    ) -> None:
        self._groups = [group for group in groups if group.num_triplets or not only_usable]
        self.num_skipped = len(groups) - len(self._groups)
        self._loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.shuffled = shuffled
        self._whole_groups = whole_groups
        self.files = list(files)
        self.modules = nn.Module()  # trains nothing beside the encoder
        if not any(group.num_triplets for group in self._groups):
            raise UserError("training groups: none has both a correct and an incorrect paraphrase")
        largest = max(self._groups, key=lambda group: len(group.texts))
        if whole_groups and len(largest.texts) > batch_size:
            raise UserError(
                f"trainer.batch_size={batch_size} sentences a step cannot hold the group of ID {largest.id}, "
                f"which has {len(largest.texts)}, and objective.whole_groups=true keeps it whole"
            )
        self._texts = [text for group in self._groups for text in group.texts]
        self._group_numbers = [i for i, group in enumerate(self._groups) for _ in group.texts]
        self.idiom_sentences = [(group.expression, group.sentence) for group in self._groups]
        self._sizes = [len(group.texts) for group in self._groups]
        self._first = np.cumsum([0, *self._sizes]).tolist()
        by_expression: dict[str, list[int]] = {}
        for number, group in enumerate(self._groups):
            by_expression.setdefault(group.expression.casefold(), []).append(number)
        rng = np.random.default_rng([seed, 3])
        self._by_expression = [rng.permutation(numbers).tolist() for numbers in by_expression.values()]
        self._per_expression = per_expression
        self.plain_requests = [
            _request(text) for group in self._groups for text in (*group.correct, *group.incorrect)
        ]

    def describe(self) -> str:
        """One line for the log."""
        skipped = f", {self.num_skipped} groups without a triplet left out" if self.num_skipped else ""
        labels = sum(1 + len(group.incorrect) for group in self._groups)
        return (
            f"{len(self._texts)} sentences in {len(self._groups)} groups of "
            f"{len({g.expression for g in self._groups})} expressions{skipped}; {labels} labels, "
            f"{sum(group.num_triplets for group in self._groups)} triplets within groups"
            + (f"; {self._per_expression} groups of an expression an epoch" if self._per_expression else "")
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, equally many in every epoch; whole groups, unless they may be cut."""
        if not self._whole_groups:
            num, size = len(self._texts), self.batch_size
            return in_shards([range(i, min(i + size, num)) for i in range(0, num, size)], shards)
        if self._per_expression is not None:
            steps = self._steps_by_expression(self._per_expression, epoch)
        elif self.shuffled:
            steps = group_steps(self._sizes, self.batch_size, np.random.default_rng([self.seed, epoch, 0]))
        else:
            steps = in_order_steps(self._sizes, self.batch_size)
        members = [range(first, first + size) for first, size in zip(self._first, self._sizes, strict=False)]
        return in_shards(steps, shards, members)

    def _steps_by_expression(self, limit: int, epoch: int) -> list[list[int]]:
        """Steps of at most `limit` groups of each expression, other ones each epoch; always as many steps."""
        max_sentences = 0  # that any epoch's groups have
        chosen: list[int] = []
        for numbers in self._by_expression:
            max_sentences += sum(sorted(self._sizes[n] for n in numbers)[-limit:])
            chosen += [numbers[(epoch * limit + i) % len(numbers)] for i in range(min(limit, len(numbers)))]
        # Enough steps for any choice: if one was too full for a group, all would be, and hold more than all.
        room = self.batch_size - max(self._sizes) + 1
        sizes = [self._sizes[n] for n in chosen]
        num_steps = min(-(-max_sentences // room), len(chosen))
        rng = np.random.default_rng([self.seed, epoch, 0])
        steps = group_steps(sizes, self.batch_size, rng, num_steps=num_steps)
        return [[chosen[i] for i in step] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests and labels of these sentences: groups, one after the other."""
        numbers = list(dict.fromkeys(self._group_numbers[n] for n in anchors))
        groups = [self._groups[i] for i in numbers]
        labels = label_groups([(len(group.correct), len(group.incorrect)) for group in groups])
        whole = [n for i in numbers for n in range(self._first[i], self._first[i + 1])]
        if whole != list(anchors):  # the first and the last group may be cut
            labels = labels.select(np.isin(whole, anchors).nonzero()[0].tolist())
        assert len(labels.labels) == len(anchors)
        return Batch(
            [_request(self._texts[n]) for n in anchors],
            [group.id for group in groups],
            labels,
            plain_rows=[i for i, is_sentence in enumerate(labels.is_sentence.tolist()) if not is_sentence],
            empty_because=why_no_triplet(self._loss, labels, "objective.loss"),
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


def why_no_triplet(loss: AdaptiveTripletLoss, labels: GroupLabels, section: str) -> str:
    """Why a batch of these texts has nothing to learn from, with what to do; "" where it has.

    Args:
        section: where the options of the loss stand.
    """
    if loss.can_learn(labels):
        return ""
    if loss.mines_in_vain:
        return f"{section}.triplets={loss.triplets} mines triplets that keep the loss's margin: choose all"
    if not loss.triplet_weight:
        return f"there is no term with a weight and something to learn from: raise {section}.triplet_weight"
    scope = f", or {section}.scope=all" if loss.scope == "within" else ""
    return (
        "a batch needs two sentences of one label and one of another: raise trainer.batch_size, or choose "
        f"objective.order=shuffled{scope}"
    )


def _request(text: str) -> Request:
    return Request(text, role="document")
