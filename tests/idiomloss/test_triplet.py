"""The adaptive triplet loss: its signs, when a batch teaches nothing, and batches of whole groups."""

import numpy as np
import pytest
import torch

from idiomloss import AdaptiveTripletLoss, group_steps, label_groups
from tests.idiomloss.harness import randn
from tests.idiomloss.loops import cosine


def test_a_step_down_the_gradient_brings_the_correct_paraphrase_nearer() -> None:
    """The signs, which the paper's print turns round."""
    x = torch.tensor([[1.0, 0.2, 0.1], [0.3, 1.0, 0.2], [0.9, 0.1, 0.5]], requires_grad=True)
    (gradient,) = torch.autograd.grad(AdaptiveTripletLoss()(x, label_groups([(1, 1)])).loss, x)
    y = (x - 0.1 * gradient).detach()
    assert cosine(y[0], y[1]) > cosine(x[0], x[1])
    assert cosine(y[0], y[2]) < cosine(x[0], x[2])


EMPTY = [  # triplet, property and correct weight; sizes of groups; mined nothing; cannot learn at all
    ((1.0, 0.0, 0.0), [(1, 0)], True, True),
    ((1.0, 0.0, 0.0), [(1, 1)], True, False),  # all keep the margin
    ((1.0, 0.0, 0.5), [(1, 1)], False, False),
    ((1.0, 0.0, 0.5), [(0, 2)], True, True),
    ((1.0, 0.5, 0.0), [(1, 1)], False, False),
    ((1.0, 0.5, 0.0), [(1, 0)], True, True),
    ((0.0, 0.0, 0.5), [(1, 1)], False, False),
    ((0.0, 0.5, 0.0), [(1, 0), (0, 1)], True, True),  # not of one group
    ((1.0, 0.0, 0.0), [(1, 0), (0, 1)], True, False),
    ((0.0, 0.0, 0.5), [(0, 2)], True, True),  # triplets that weigh nothing
]


@pytest.mark.parametrize(("weights", "sizes", "is_empty", "is_hopeless"), EMPTY)
def test_a_batch_is_empty_if_no_term_learns_from_it(
    weights: tuple[float, float, float], sizes: list[tuple[int, int]], is_empty: bool, is_hopeless: bool
) -> None:
    triplet, property_, correct = weights
    loss = AdaptiveTripletLoss(triplet_weight=triplet, property_weight=property_, correct_weight=correct)
    groups = label_groups(sizes)
    x = 0.01 * randn(len(groups.labels), 9, dtype=torch.float32).detach()
    x[range(len(x)), groups.labels] += 1  # each label has its direction: all triplets keep the margin
    result = loss(x.requires_grad_(), groups)
    assert result.is_empty == is_empty == (not torch.autograd.grad(result.loss, x)[0].any())
    assert loss.can_learn(groups) != is_hopeless


def test_texts_of_one_group_give_no_triplets_across_groups() -> None:
    groups = label_groups([(1, 0), (0, 1)])
    assert AdaptiveTripletLoss().can_learn(groups)
    assert not AdaptiveTripletLoss(scope="within").can_learn(groups)


def test_steps_are_as_few_as_can_hold_the_groups() -> None:
    plan = group_steps([3, 3, 3], 5, np.random.default_rng(0))  # 9 sentences would fill two steps
    assert sorted(plan) == [[0], [1], [2]]


def test_every_epoch_has_as_many_steps() -> None:
    """Greedy packing of shuffled groups gives now one step more, now one less: a run then breaks off."""
    sizes = [3, 4, 5, 7, 2] * 30 + [13]
    for size in (13, 16, 64):
        plans = [group_steps(sizes, size, np.random.default_rng([0, epoch])) for epoch in range(8)]
        assert len({len(plan) for plan in plans}) == 1
        assert all(sorted(i for step in plan for i in step) == list(range(len(sizes))) for plan in plans)
        assert all(sum(sizes[i] for i in step) <= size for plan in plans for step in plan)
        assert len(plans[0]) <= 1.2 * sum(sizes) / size + 1
