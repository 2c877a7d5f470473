"""The ranking losses, sound and as printed, by hand: where each is smallest, what the print does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from idiomloss import (
    listwise_softmax,
    pairwise_hinge,
    pairwise_printed,
    top1_hinge,
    top1_printed,
)

B, N, ALPHA = 6, 5, 0.3


B, N = 6, 5


def random_case(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    ranks = torch.stack([torch.randperm(N, generator=g) for _ in range(B)])
    return torch.randn(B, N, generator=g, dtype=dtype).requires_grad_(), ranks


def test_by_hand() -> None:
    """Candidates in gold order, scores 3, 1, 2, 0, 0; margin 1."""
    scores, ranks = torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]), torch.arange(5)[None]
    # Of the ten pairs (1, 2) falls short by 2, and (3, 4) by 1.
    assert pairwise_hinge(scores, ranks).item() == pytest.approx(0.3)
    assert top1_hinge(scores, ranks).item() == 0.0
    assert top1_hinge(scores, ranks.flip(1)).item() == pytest.approx((4 + 2 + 3 + 1) / 4)
    assert listwise_softmax(torch.zeros(1, 5), ranks).item() == pytest.approx(math.log(5))


def test_the_gold_order_is_where_each_is_smallest_but_in_print_it_is_not() -> None:
    _, ranks = random_case(seed=3)
    gold = (N - 1 - ranks).double()
    for sound, printed in ((pairwise_hinge, pairwise_printed), (top1_hinge, top1_printed)):
        assert not sound(gold, ranks).any()
        assert (printed(100 * gold, ranks) < printed(10 * gold, ranks)).all()
        assert (printed(10 * gold, ranks) < 0).all()
    distribution = gold.softmax(1)
    entropy = -(distribution * distribution.log()).sum(1)
    torch.testing.assert_close(listwise_softmax(gold, ranks), entropy)
    assert (listwise_softmax(gold.flip(1), ranks) > entropy).all()


def test_a_small_gold_temperature_asks_for_the_best_alone() -> None:
    scores, ranks = random_case(seed=4)
    expected = torch.nn.functional.cross_entropy(scores, ranks.argmin(1), reduction="none")
    torch.testing.assert_close(listwise_softmax(scores, ranks, 1e-3), expected)


def test_without_its_hinge_one_candidate_pays_for_another() -> None:
    """The second best is above the best: the hinge sees it, whatever the last one's score."""
    ranks = torch.arange(5)[None]
    for last, unbounded in ((0.0, (2.0 - 0.0 - 0.0 + 0.0) / 4), (-8.0, (2.0 - 0.0 - 0.0 - 8.0) / 4)):
        scores = torch.tensor([[1.0, 2.0, 0.0, 0.0, last]])
        assert top1_hinge(scores, ranks).item() == pytest.approx(2.0 / 4)
        assert top1_hinge(scores, ranks, bounded=False).item() == pytest.approx(unbounded)


@pytest.mark.parametrize(
    ("better", "worse", "sound", "printed", "slope"),
    [
        (0.0, 3.0, 4.0, 4.0, -1.0),  # wrong by more than the margin: the same
        (0.0, 0.5, 1.5, 1.0, -2.0),
        (0.5, 0.0, 0.5, -1.0, -2.0),
        (3.0, 0.0, 0.0, -4.0, -1.0),  # right by more than the margin: nothing, but a reward in print
    ],
)
def test_a_pair_in_print_and_in_the_sound_form(
    better: float, worse: float, sound: float, printed: float, slope: float
) -> None:
    """Sums over the pair's two orders, margin 1; the sound form's slope is -1 until the margin is kept."""
    scores, ranks = torch.tensor([[better, worse]], requires_grad=True), torch.tensor([[0, 1]])
    assert pairwise_hinge(scores, ranks).item() == pytest.approx(sound)
    both_orders = 2 * pairwise_printed(scores, ranks)
    assert both_orders.item() == pytest.approx(printed)
    assert torch.autograd.grad(both_orders.sum(), scores)[0].tolist() == [[slope, -slope]]


@pytest.mark.parametrize(("alpha", "drift"), [(0.0, -3.0), (0.2, 0.0), (0.3, 1.5)])
def test_top1_in_print_drifts_unless_alpha_is_one_nth(alpha: float, drift: float) -> None:
    scores, ranks = random_case(seed=4)
    change = top1_printed(scores + 3, ranks, sum_weight=alpha) - top1_printed(scores, ranks, sum_weight=alpha)
    torch.testing.assert_close(change, torch.full_like(change, drift))
