"""Relabelled groups: a sentence with an idiom, its correct and its incorrect paraphrases, as labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupLabels:
    """What each of B embeddings is, see :func:`label_groups`.

    Attributes:
        labels: (B,), integer: the same for texts that may be each other's anchor and positive.
        groups: (B,), integer: the group it belongs to.
        is_sentence: (B,), bool: the sentence with the idiom, not one of its paraphrases.
    """

    labels: Tensor
    groups: Tensor
    is_sentence: Tensor

    def select(self, rows: Sequence[int]) -> GroupLabels:
        """Those of these rows."""
        return GroupLabels(self.labels[rows], self.groups[rows], self.is_sentence[rows])

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
