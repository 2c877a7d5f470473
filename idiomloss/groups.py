"""Relabelled groups (a sentence with an idiom and its paraphrases) as labels, and batches of whole groups."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupLabels:
    """Label, group and kind of each of B embeddings, see :func:`label_groups`.

    Attributes:
        labels: (B,), integer: the same for texts that may be each other's anchor and positive.
        groups: (B,), integer: the group it belongs to.
        is_sentence: (B,), bool: the sentence with the idiom, not one of its paraphrases.
    """

    labels: Tensor
    groups: Tensor
    is_sentence: Tensor

    def to(self, device: torch.device) -> GroupLabels:
        """The same on another device."""
        return GroupLabels(self.labels.to(device), self.groups.to(device), self.is_sentence.to(device))


def label_groups(sizes: Sequence[tuple[int, int]]) -> GroupLabels:
    """Labels of whole groups, one after the other: the sentence, its correct, its incorrect paraphrases.

    The sentence and its correct paraphrases share a label, so that anchor and positive are interchangeable;
    every incorrect paraphrase has its own label, so that it is only ever a negative. No label occurs in two
    groups.

    Args:
        sizes: (correct paraphrases, incorrect paraphrases) of each group.

    Returns:
        Labels of B = sum of 1 + correct + incorrect embeddings.

    References:
        He et al., "Enhancing Idiomatic Representation in Multiple Languages via an Adaptive Contrastive
        Triplet Loss", arXiv 2406.15175.
    """
    labels: list[int] = []
    groups: list[int] = []
    is_sentence: list[bool] = []
    new = 0
    for number, (num_correct, num_incorrect) in enumerate(sizes):
        labels += [new] * (1 + num_correct) + list(range(new + 1, new + 1 + num_incorrect))
        new += 1 + num_incorrect
        groups += [number] * (1 + num_correct + num_incorrect)
        is_sentence += [True] + [False] * (num_correct + num_incorrect)
    return GroupLabels(torch.tensor(labels), torch.tensor(groups), torch.tensor(is_sentence))


def group_steps(
    sizes: Sequence[int], size: int, rng: np.random.Generator, num_steps: int | None = None
) -> list[list[int]]:
    """Steps of whole groups, at most `size` sentences each, about equally full, in random order.

    Every group occurs once. The largest first, each goes to the least full step (ties drawn). So what is
    drawn decides which groups meet, but not how many steps an epoch has.

    Args:
        sizes: sentences of each group, none more than `size`.
        size: sentences a step, at most.
        num_steps: the number of steps, if that many can hold all groups; by default, and otherwise, as few
            as can.
    """
    drawn = rng.permutation(len(sizes)).tolist()
    largest_first = sorted(drawn, key=lambda group: -sizes[group])
    number = num_steps or -(-sum(sizes) // size)
    while (steps := _fill(sizes, largest_first, number, size, rng)) is None:
        number += 1
    return [steps[i] for i in rng.permutation(number).tolist()]


def _fill(
    sizes: Sequence[int], order: Sequence[int], number: int, size: int, rng: np.random.Generator
) -> list[list[int]] | None:
    """`number` steps; None if they cannot hold all groups."""
    ties = rng.random(len(order)).tolist()
    steps: list[list[int]] = [[] for _ in range(number)]
    least_full = [(0, 0.0, i) for i in range(number)]
    for group, tie in zip(order, ties, strict=True):
        full, _, i = heapq.heappop(least_full)
        if full + sizes[group] > size:
            return None
        steps[i].append(group)
        heapq.heappush(least_full, (full + sizes[group], tie, i))
    return steps
