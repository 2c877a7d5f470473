"""The adaptive triplet loss against loops over all triples; labels and batches of whole groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from idiomloss import AdaptiveTripletLoss, GroupLabels, group_steps, label_groups
from idiomloss.triplet import MiningDistance, Scope, Triplets
from tests.idiomloss.harness import assert_nothing_learnt, randn

SIZES = [(1, 2), (2, 1), (1, 0), (0, 1), (2, 2)]  # (correct, incorrect) of each group
ROWS = [  # (group, role) of each row
    (group, role)
    for group, (correct, incorrect) in enumerate(SIZES)
    for role in ("sentence", *["correct"] * correct, *["incorrect"] * incorrect)
]
MARGIN, MINING_MARGIN = 0.3, 0.4


def cosine(a: Tensor, b: Tensor) -> Tensor:
    similarity: Tensor = (a @ b) / (a.norm() * b.norm())
    return similarity


def naive(
    x: Tensor, kind: Triplets, scope: Scope, distance: MiningDistance, weights: tuple[float, float, float]
) -> tuple[Tensor, int, int]:
    terms: list[Tensor] = []
    within = across = 0
    for a, p, n in itertools.permutations(range(len(ROWS)), 3):
        if ROWS[a][0] != ROWS[p][0] or "incorrect" in (ROWS[a][1], ROWS[p][1]):
            continue  # anchor and positive: the sentence and its correct paraphrases
        is_within = ROWS[n][0] == ROWS[a][0]
        if (is_within and ROWS[n][1] != "incorrect") or (scope == "within" and not is_within):
            continue
        sim_p, sim_n = cosine(x[a], x[p]), cosine(x[a], x[n])
        gap = (sim_p - sim_n).item()
        if distance == "euclidean":
            unit = [x[i] / x[i].norm() for i in (a, p, n)]
            gap = ((unit[0] - unit[2]).norm() - (unit[0] - unit[1]).norm()).item()
        is_mined = {
            "all": gap <= MINING_MARGIN,
            "hard": gap <= 0,
            "semihard": 0 < gap <= MINING_MARGIN,
            "easy": gap > MINING_MARGIN,
        }[kind]
        if is_mined:
            within, across = within + is_within, across + (not is_within)
            terms += [sim_n - sim_p + MARGIN] if sim_n - sim_p + MARGIN > 0 else []
    triplet = torch.stack(terms).mean() if terms else x.sum() * 0
    squares, gaps = [], []
    for i, c in itertools.permutations(range(len(ROWS)), 2):
        if ROWS[i][0] != ROWS[c][0] or (ROWS[i][1], ROWS[c][1]) != ("sentence", "correct"):
            continue
        gaps.append(1 - cosine(x[i], x[c]))
        for n in (n for n, row in enumerate(ROWS) if row == (ROWS[i][0], "incorrect")):
            squares.append((cosine(x[i], x[n]) - cosine(x[c], x[n]).detach()) ** 2)
    each = [triplet, torch.stack(squares).mean(), torch.stack(gaps).mean()]
    return torch.stack([w * t for w, t in zip(weights, each, strict=True)]).sum(), within, across


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (2.0, 0.5, 3.0)])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("scope", ["all", "within"])
@pytest.mark.parametrize("kind", ["all", "hard", "semihard", "easy"])
def test_value_gradient_and_counts_equal_the_loops(
    kind: Triplets, scope: Scope, distance: MiningDistance, weights: tuple[float, float, float]
) -> None:
    ours, theirs = randn(len(ROWS), 6), randn(len(ROWS), 6)
    loss = AdaptiveTripletLoss(MARGIN, MINING_MARGIN, distance, kind, scope, *weights)
    result = loss(ours, label_groups(SIZES))
    expected, within, across = naive(theirs, kind, scope, distance, weights)
    assert (result.num_within, result.num_across) == (within, across)
    assert within  # no comparison of nothing with nothing
    assert result.loss.item() == pytest.approx(expected.item(), abs=1e-9)
    gradients = torch.autograd.grad(result.loss, ours)[0], torch.autograd.grad(expected, theirs)[0]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)])
def test_lower_precision_inputs_are_computed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    x = randn(len(ROWS), 6).detach().to(dtype).requires_grad_()
    result = AdaptiveTripletLoss(property_weight=1.0, correct_weight=1.0)(x, label_groups(SIZES))
    assert result.loss.dtype == torch.float32
    same_numbers = x.detach().double().requires_grad_()
    expected, within, across = naive(same_numbers, "all", "all", "cosine", (1.0, 1.0, 1.0))
    assert (result.num_within, result.num_across) == (within, across)
    assert result.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    gradient, theirs = torch.autograd.grad(result.loss, x)[0], torch.autograd.grad(expected, same_numbers)[0]
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("groups", [label_groups([(1, 0)]), label_groups([(0, 2)]), label_groups([(1, 2)])])
def test_nothing_mined_is_zero_with_a_graph(groups: GroupLabels) -> None:
    """No negative, no positive, or only triplets that keep the margin by far."""
    x = torch.eye(len(groups.labels))
    x[1] = x[0]
    result = AdaptiveTripletLoss(property_weight=1.0)(x.requires_grad_(), groups)
    assert (result.num_within, result.num_across) == (0, 0)
    assert_nothing_learnt(result.loss, x)


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
    assert not AdaptiveTripletLoss(triplets="easy").can_learn(groups)
    assert AdaptiveTripletLoss(triplets="easy", margin=0.5).can_learn(groups)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="3 embeddings but 2 labels"):
        AdaptiveTripletLoss()(torch.randn(3, 4), label_groups([(1, 0)]))
    for option, wrong in {
        "margin": -0.1,
        "triplets": "some",
        "scope": "some",
        "mining_distance": "l1",
    }.items():
        with pytest.raises(ValueError, match=r"margins|is not one of"):
            AdaptiveTripletLoss(**{option: wrong})  # type: ignore[arg-type]


def test_labels() -> None:
    made = label_groups([(1, 2), (0, 0), (2, 1)])
    assert made.labels.tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 5]
    assert made.groups.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2]
    assert made.is_sentence.tolist() == [True, False, False, False, True, True, False, False, False]


def test_every_epoch_has_as_many_steps() -> None:
    """Greedy packing of shuffled groups gives now one step more, now one less: a run then breaks off."""
    sizes = [3, 4, 5, 7, 2] * 30 + [13]
    for size in (13, 16, 64):
        plans = [group_steps(sizes, size, np.random.default_rng([0, epoch])) for epoch in range(20)]
        assert len({len(plan) for plan in plans}) == 1
        assert all(sorted(i for step in plan for i in step) == list(range(len(sizes))) for plan in plans)
        assert all(sum(sizes[i] for i in step) <= size for plan in plans for step in plan)
        assert len(plans[0]) <= 1.2 * sum(sizes) / size + 1
