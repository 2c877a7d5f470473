"""Adaptive triplet: sentences with idioms and their paraphrases, by mined triplets of whole groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from idiomloss import AdaptiveTripletLoss, GroupLabels, group_steps, label_groups
from train.data.semeval2022 import Group
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.requests import Request


@dataclass(frozen=True)
class _Plan:
    labels: GroupLabels
    num_possible: int  # triplets within groups
    has_correct: bool  # in some group


class AdaptiveTripletObjective:
    """Fine-tunes on relabelled groups. An anchor is a sentence, and every sentence of a group is one.

    Args:
        groups: of the training files.
        loss: the adaptive triplet loss with its options.
        batch_size: sentences an optimizer step, at most: a group is never cut in two.
        seed: of the order of groups.
        shuffled: an order drawn anew each epoch, instead of the file's.
        only_usable: leave out groups without an incorrect (or without a correct) paraphrase
            (`num_skipped`), which have no triplet of their own.
        per_expression: groups of an expression an epoch, at most, and the next ones in the next epoch: an
            expression that has few then counts for as much as one that has many. None = all groups.
        files: that were read.

    Raises:
        UserError: if no group is left, or one is larger than a batch.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        loss: AdaptiveTripletLoss,
        *,
        batch_size: int,
        seed: int,
        shuffled: bool,
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
        self.files = list(files)
        self.modules = nn.Module()  # trains nothing beside the encoder
        if not any(group.num_triplets for group in self._groups):
            raise UserError("training groups: none has both a correct and an incorrect paraphrase")
        largest = max(self._groups, key=lambda group: len(group.texts))
        if len(largest.texts) > batch_size:
            raise UserError(
                f"trainer.batch_size={batch_size} sentences a step cannot hold the group of ID {largest.id}, "
                f"which has {len(largest.texts)}, and a group is never cut in two"
            )
        self._texts = [text for group in self._groups for text in group.texts]
        self._group_of = [i for i, group in enumerate(self._groups) for _ in group.texts]
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
        skipped = (
            f", {self.num_skipped} groups without a triplet of their own left out" if self.num_skipped else ""
        )
        labels = sum(1 + len(group.incorrect) for group in self._groups)
        return (
            f"{len(self._texts)} sentences in {len(self._groups)} groups of "
            f"{len({g.expression for g in self._groups})} expressions{skipped}; {labels} labels, "
            f"{sum(group.num_triplets for group in self._groups)} triplets within groups"
            + (f"; {self._per_expression} groups of an expression an epoch" if self._per_expression else "")
        )

    def plan(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: whole groups, equally many steps in every epoch; each cut between groups."""
        if self._per_expression is not None:
            steps = self._some(self._per_expression, epoch)
        elif self.shuffled:
            steps = group_steps(self._sizes, self.batch_size, np.random.default_rng([self.seed, epoch, 0]))
        else:
            steps = self._in_order()
        return [
            [
                [n for group in part for n in range(self._first[group], self._first[group + 1])]
                for part in np.array_split(step, shards)
                if len(part)
            ]
            for step in steps
        ]

    def _some(self, most: int, epoch: int) -> list[list[int]]:
        """At most so many groups of each expression, the next ones each epoch; always equally many steps."""
        most_sentences = 0
        chosen: list[int] = []
        for numbers in self._by_expression:
            most_sentences += sum(sorted(self._sizes[n] for n in numbers)[-most:])
            chosen += [numbers[(epoch * most + i) % len(numbers)] for i in range(min(most, len(numbers)))]
        # So many steps hold any choice: were one of them too full for a group, all would be that full.
        room = self.batch_size - max(self._sizes) + 1
        sizes = [self._sizes[n] for n in chosen]
        number = min(-(-most_sentences // room), len(chosen))
        rng = np.random.default_rng([self.seed, epoch, 0])
        steps = group_steps(sizes, self.batch_size, rng, num_steps=number)
        return [[chosen[i] for i in step] for step in steps]

    def _in_order(self) -> list[list[int]]:
        """Groups in the file's order, as many a step as fit."""
        steps: list[list[int]] = [[]]
        room = self.batch_size
        for group, size in enumerate(self._sizes):
            if size > room:
                steps.append([])
                room = self.batch_size
            steps[-1].append(group)
            room -= size
        return steps

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests and labels of these sentences, which are whole groups one after the other."""
        groups = [self._groups[i] for i in dict.fromkeys(self._group_of[n] for n in anchors)]
        labels = label_groups([(len(group.correct), len(group.incorrect)) for group in groups])
        assert len(labels.labels) == len(anchors)
        return Batch(
            [_request(self._texts[n]) for n in anchors],
            [group.id for group in groups],
            _Plan(
                labels,
                sum(group.num_triplets for group in groups),
                any(group.correct for group in groups),
            ),
            plain_rows=[i for i, is_sentence in enumerate(labels.is_sentence.tolist()) if not is_sentence],
        )

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the batch's mined triplets."""
        plan: _Plan = batch.plan
        result = self._loss(embeddings, plan.labels.to(embeddings.device))
        counts = {
            "triplets_possible": float(plan.num_possible),
            "triplets_within": float(result.num_within),
            "triplets_across": float(result.num_across),
        }
        has_triplets = self._loss.triplet_weight and result.num_within + result.num_across
        has_property = self._loss.property_weight and plan.num_possible
        has_correct = self._loss.correct_weight and plan.has_correct
        return ObjectiveLoss(
            result.loss, counts, is_empty=not has_triplets and not has_property and not has_correct
        )


def _request(text: str) -> Request:
    return Request(text, role="document")
