"""Whole groups in batches."""

from __future__ import annotations

import numpy as np

from idiomloss import group_steps


def test_every_epoch_has_as_many_steps() -> None:
    """Greedy packing of shuffled groups gives now one step more, now one less: a run then breaks off."""
    sizes = [3, 4, 5, 7, 2] * 30 + [13]
    for size in (13, 16, 64):
        plans = [group_steps(sizes, size, np.random.default_rng([0, epoch])) for epoch in range(20)]
        assert len({len(plan) for plan in plans}) == 1
        assert all(sorted(i for step in plan for i in step) == list(range(len(sizes))) for plan in plans)
        assert all(sum(sizes[i] for i in step) <= size for plan in plans for step in plan)
        assert len(plans[0]) <= 1.2 * sum(sizes) / size + 1
