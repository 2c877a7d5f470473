"""Cutting an epoch's anchors into optimizer steps: shuffled, or balanced by idiom.

For whole groups see :func:`idiomloss.group_steps`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)


def shuffled_steps(
    anchors: Sequence[int] | NDArray[np.int64], size: int, rng: np.random.Generator
) -> list[list[int]]:
    """All anchors in a random order, `size` a step; the last step may be smaller."""
    order = rng.permutation(anchors).tolist()
    return [order[i : i + size] for i in range(0, len(order), size)]


def split_micro_steps(
    steps: Sequence[Sequence[int]], num_parts: int, members: Sequence[Sequence[int]] | None = None
) -> list[list[list[int]]]:
    """Each step cut into `num_parts` parts, or fewer if it is short.

    Args:
        members: if `steps` are of groups, the anchors of each group, which is not cut.
    """
    import numpy as np

    parts = [[part.tolist() for part in np.array_split(step, num_parts) if len(part)] for step in steps]
    if members is None:
        return parts
    return [[[anchor for group in part for anchor in members[group]] for part in step] for step in parts]


def balanced_steps(
    anchors: Sequence[int],
    size: int,
    idioms_per_step: int,
    classes: Mapping[int, tuple[Hashable, str]],
    rng: np.random.Generator,
) -> list[list[int]]:
    """Steps of several idioms with equally many anchors each, of all usages in their proportion.

    Every anchor occurs once. An idiom's anchors are ordered so that each stretch of them has about the
    usages' overall proportions, and cut into runs of `size / idioms_per_step`. A step takes runs of distinct
    idioms, first of those with most runs left, so that the idioms run out at about the same time.

    Args:
        anchors: numbers of the anchors.
        size: anchors a step.
        idioms_per_step: number of idioms in a step; divides `size`. The last steps of an epoch may hold
            fewer.
        classes: anchor → (idiom, usage).
    """
    by_idiom: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for anchor in anchors:
        idiom, usage = classes[anchor]
        by_idiom[idiom][usage].append(anchor)
    length = size // idioms_per_step
    runs: list[list[list[int]]] = []
    for usages in by_idiom.values():
        # The i-th of n anchors of a usage goes to (i + u) / n, with one u for each usage: an even spread.
        placed = [
            ((i + offset) / len(members), anchor)
            for members, offset in zip(usages.values(), rng.random(len(usages)).tolist(), strict=True)
            for i, anchor in enumerate(rng.permutation(members).tolist())
        ]
        order = [anchor for _, anchor in sorted(placed)]
        runs.append([order[i : i + length] for i in range(0, len(order), length)])

    steps = []
    while any(runs):
        ties = rng.random(len(runs)).tolist()
        fullest = sorted(range(len(runs)), key=lambda i: (-len(runs[i]), ties[i]))
        chosen = [i for i in fullest[:idioms_per_step] if runs[i]]
        steps.append([anchor for i in chosen for anchor in runs[i].pop(0)])
    order = rng.permutation(len(steps)).tolist()
    return [steps[i] for i in order]


def repeated_anchors(steps: Iterable[Iterable[Iterable[int]]]) -> list[int]:
    """Anchors that occur several times in an epoch's steps."""
    counts = Counter(chain.from_iterable(chain.from_iterable(steps)))
    return [anchor for anchor, count in counts.items() if count > 1]
