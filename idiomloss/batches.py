"""Batches of whole groups: no group is ever split."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np


def group_steps(
    sizes: Sequence[int], size: int, rng: np.random.Generator, num_steps: int | None = None
) -> list[list[int]]:
    """Steps of whole groups, at most `size` sentences each, about equally full, in random order.

    Every group occurs once. The largest first, each goes to the least full step (ties drawn). So what is
    drawn decides which groups meet, but not how many steps an epoch has.

    Args:
        sizes: sentences of each group, none more than `size`.
        size: sentences a step, at most.
        num_steps: how many, if so many can hold all groups; by default, and otherwise, as few as can.
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
    """`number` steps, or None where they cannot hold all."""
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
