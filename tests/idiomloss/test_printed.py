"""AIMA's losses as printed: against naive loops over the print, and beside the sound forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from idiomloss import (
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1PrintedLoss,
    listwise_softmax,
    pairwise_hinge,
    pairwise_printed,
    top1_hinge,
    top1_printed,
)
from tests.idiomloss.test_ranking import B, N, random_case

ALPHA = 0.3


def naive_pairwise(scores: Tensor, ranks: Tensor, margin: float) -> Tensor:
    items = []
    for s, r in zip(scores, ranks.tolist(), strict=True):
        terms = []
        for i in range(N):
            for j in range(N):
                if i != j:
                    hinge = margin - (s[i] - s[j])
                    terms.append((hinge if hinge > 0 else 0 * hinge) * (1 if r[j] > r[i] else -1))
        assert len(terms) == N * (N - 1)
        items.append(torch.stack(terms).mean())
    return torch.stack(items)


def naive_top1(scores: Tensor, ranks: Tensor, margin: float) -> Tensor:
    items = []
    for s, r in zip(scores, ranks.tolist(), strict=True):
        best = r.index(0)
        total = -s[best]
        for j in range(N):
            hinge = margin + s[j] - s[best]
            total = total + ALPHA * s[j] + (hinge if j != best and hinge > 0 else 0 * hinge)
        items.append(total)
    return torch.stack(items)


def top1(scores: Tensor, ranks: Tensor, margin: float) -> Tensor:
    return top1_printed(scores, ranks, margin, ALPHA)


Loss = Callable[[Tensor, Tensor, float], Tensor]
each_loss = pytest.mark.parametrize(
    ("loss", "naive", "module"),
    [
        (pairwise_printed, naive_pairwise, PairwisePrintedLoss),
        (top1, naive_top1, lambda margin: Top1PrintedLoss(margin, ALPHA)),
    ],
)


@each_loss
@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0, 2.5])
def test_equals_the_naive_loop(
    loss: Loss, naive: Loss, module: Callable[[float], nn.Module], margin: float
) -> None:
    scores, ranks = random_case(seed=1)
    scores.requires_grad_()
    expected = naive(scores, ranks, margin)
    torch.testing.assert_close(loss(scores, ranks, margin), expected)
    mean = module(margin)(scores, ranks)
    torch.testing.assert_close(mean, expected.mean())
    torch.testing.assert_close(
        torch.autograd.grad(mean, scores)[0], torch.autograd.grad(expected.mean(), scores)[0]
    )


@each_loss
def test_edges(loss: Loss, naive: Loss, module: Callable[[float], nn.Module]) -> None:  # noqa: ARG001
    """Gradients by differences; half types; no item; wrong use."""
    scores, ranks = random_case(seed=2)
    assert torch.autograd.gradcheck(lambda s: module(0.7)(s, ranks), (scores.requires_grad_(),))
    value = module(1.0)((1000 * scores).to(torch.bfloat16), ranks)
    assert value.dtype == torch.float32
    assert value.isfinite()
    empty = torch.zeros(0, N, requires_grad=True)
    value = module(1.0)(empty, torch.zeros(0, N, dtype=torch.long))
    assert value.item() == 0.0
    assert torch.autograd.grad(value, empty)[0].shape == (0, N)
    with pytest.raises(ValueError, match="margin must not be negative"):
        loss(scores, ranks, -1.0)
    with pytest.raises(ValueError, match="each row must hold 0 to 4 once"):
        loss(scores, torch.zeros_like(ranks), 1.0)


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


def test_pairwise_agrees_only_where_every_pair_is_far_out_of_order() -> None:
    ranks = torch.arange(N).repeat(B, 1)
    reversed_order = 2.0 * torch.arange(N).double().repeat(B, 1).requires_grad_()
    for scores, agrees in ((reversed_order, True), (random_case(seed=3)[0].requires_grad_(), False)):
        sound, printed = PairwiseHingeLoss()(scores, ranks), 2 * PairwisePrintedLoss()(scores, ranks)
        gradients = [torch.autograd.grad(loss, scores)[0] for loss in (sound, printed)]
        assert torch.allclose(sound, printed) == agrees
        assert torch.allclose(gradients[0], gradients[1]) == agrees


def test_in_print_the_gold_order_is_no_minimum() -> None:
    ranks = torch.arange(N)[None]
    gold = (N - 1 - ranks).double()
    for sound, printed in ((pairwise_hinge, pairwise_printed), (top1_hinge, top1_printed)):
        assert sound(gold, ranks).item() == sound(10 * gold, ranks).item() == 0.0
        assert printed(100 * gold, ranks) < printed(10 * gold, ranks) < printed(gold, ranks) < 0


@pytest.mark.parametrize(("alpha", "drift"), [(0.0, -3.0), (0.2, 0.0), (0.3, 1.5)])
def test_top1_in_print_is_the_hinges_and_two_terms(alpha: float, drift: float) -> None:
    """All scores 3 higher: alpha = 1 / N alone does not mind."""
    scores, ranks = random_case(seed=4)
    best = scores[ranks == 0]
    expected = (N - 1) * top1_hinge(scores, ranks) - best + alpha * scores.sum(1)
    found = top1_printed(scores, ranks, sum_weight=alpha)
    torch.testing.assert_close(found, expected)
    shifted = top1_printed(scores + 3, ranks, sum_weight=alpha)
    torch.testing.assert_close(shifted - found, torch.full_like(found, drift))
    with pytest.raises(ValueError, match="sum_weight must not be negative"):
        top1_printed(scores, ranks, sum_weight=-0.1)


def test_the_listwise_loss_is_as_printed() -> None:
    scores, ranks = random_case(seed=5)
    printed = -((-ranks.double()).softmax(1) * scores.log_softmax(1)).sum(1)
    torch.testing.assert_close(listwise_softmax(scores, ranks), printed)
