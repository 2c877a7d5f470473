"""The ranking losses against naive loops, by hand, by gradcheck, and at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from idiomloss import (
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    Top1HingeLoss,
    listwise_softmax,
    pairwise_hinge,
    top1_hinge,
)

B, N = 6, 5


def random_case(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    ranks = torch.stack([torch.randperm(N, generator=g) for _ in range(B)])
    return torch.randn(B, N, generator=g, dtype=dtype), ranks


def naive_pairwise(scores: Tensor, ranks: Tensor, margin: float) -> Tensor:
    items = []
    for s, r in zip(scores, ranks.tolist(), strict=True):
        terms = []
        for i in range(N):
            for j in range(N):
                if r[i] < r[j]:
                    difference = s[i] - s[j]
                    terms.append(margin - difference if difference < margin else 0 * difference)
        assert len(terms) == 10
        items.append(sum(terms) / 10)
    return torch.stack(items)


def naive_listwise(scores: Tensor, ranks: Tensor, temperature: float) -> Tensor:
    items = []
    for s, r in zip(scores, ranks.tolist(), strict=True):
        weights = [math.exp((N - 1 - r[i]) / temperature) for i in range(N)]
        total = sum(s[i].exp() for i in range(N))
        items.append(-sum(weights[i] / sum(weights) * (s[i].exp() / total).log() for i in range(N)))
    return torch.stack(items)


def naive_top1(scores: Tensor, ranks: Tensor, margin: float) -> Tensor:
    items = []
    for s, r in zip(scores, ranks.tolist(), strict=True):
        best = r.index(0)
        terms = [margin - (s[best] - s[j]) for j in range(N) if j != best]
        items.append(sum(term if term > 0 else 0 * term for term in terms) / 4)
    return torch.stack(items)


Loss = Callable[[Tensor, Tensor, float], Tensor]
Module = Callable[[float], nn.Module]
LOSSES: list[Loss] = [pairwise_hinge, listwise_softmax, top1_hinge]
NAIVE: list[Loss] = [naive_pairwise, naive_listwise, naive_top1]
MODULES: list[Module] = [PairwiseHingeLoss, ListwiseSoftmaxLoss, Top1HingeLoss]
each_module = pytest.mark.parametrize("module", MODULES)


@pytest.mark.parametrize(("loss", "naive", "module"), list(zip(LOSSES, NAIVE, MODULES, strict=True)))
@pytest.mark.parametrize("option", [0.3, 1.0, 2.5])
def test_equals_the_naive_loop(loss: Loss, naive: Loss, module: Module, option: float) -> None:
    scores, ranks = random_case(seed=1)
    scores.requires_grad_()
    ours, theirs = loss(scores, ranks, option), naive(scores, ranks, option)
    torch.testing.assert_close(ours, theirs)
    mean = module(option)(scores, ranks)
    torch.testing.assert_close(mean, theirs.mean())
    torch.testing.assert_close(
        torch.autograd.grad(mean, scores)[0], torch.autograd.grad(theirs.mean(), scores)[0]
    )


@each_module
def test_gradcheck(module: Module) -> None:
    scores, ranks = random_case(seed=2)
    assert torch.autograd.gradcheck(lambda s: module(0.7)(s, ranks), (scores.requires_grad_(),))


def test_a_sign_factor_over_all_pairs_is_the_same_pairwise_loss() -> None:
    scores, ranks = random_case(seed=7)
    for item, (s, r) in enumerate(zip(scores, ranks, strict=True)):
        terms = [
            (0.7 - (r[j] - r[i]).sign() * (s[i] - s[j])).clamp(min=0)
            for i in range(N)
            for j in range(N)
            if i != j
        ]
        torch.testing.assert_close(pairwise_hinge(scores, ranks, 0.7)[item], torch.stack(terms).mean())


def test_without_its_hinge_one_candidate_pays_for_another() -> None:
    """The second best stands above the best: the hinge sees it, whatever the last one's score."""
    ranks = torch.arange(5)[None]
    for last, unbounded in ((0.0, (2.0 - 0.0 - 0.0 + 0.0) / 4), (-8.0, (2.0 - 0.0 - 0.0 - 8.0) / 4)):
        scores = torch.tensor([[1.0, 2.0, 0.0, 0.0, last]], requires_grad=True)
        assert top1_hinge(scores, ranks).item() == pytest.approx(2.0 / 4)
        loss = Top1HingeLoss(bounded=False)(scores, ranks)
        assert loss.item() == pytest.approx(unbounded)
        (gradient,) = torch.autograd.grad(loss, scores)
        assert gradient.tolist() == [[-1.0, 0.25, 0.25, 0.25, 0.25]]
    scores, ranks = random_case(seed=8)
    unbounded_loss = Top1HingeLoss(0.7, bounded=False)
    assert torch.autograd.gradcheck(lambda s: unbounded_loss(s, ranks), (scores.requires_grad_(),))


def test_by_hand() -> None:
    """Candidates in gold order, scores 3, 1, 2, 0, 0; margin 1."""
    scores, ranks = torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]), torch.arange(5)[None]
    # Of the ten pairs (1, 2) falls short by 2, and (3, 4) by 1.
    assert pairwise_hinge(scores, ranks).item() == pytest.approx(0.3)
    assert top1_hinge(scores, ranks).item() == 0.0
    assert top1_hinge(scores, ranks.flip(1)).item() == pytest.approx((4 + 2 + 3 + 1) / 4)
    uniform = torch.zeros(1, 5)
    assert listwise_softmax(uniform, ranks).item() == pytest.approx(math.log(5))


def test_the_gold_order_is_where_each_is_smallest() -> None:
    _, ranks = random_case(seed=3)
    gold = (N - 1 - ranks).double()
    assert pairwise_hinge(gold, ranks).tolist() == [0.0] * B
    assert top1_hinge(gold, ranks).tolist() == [0.0] * B
    distribution = gold.softmax(1)
    entropy = -(distribution * distribution.log()).sum(1)
    torch.testing.assert_close(listwise_softmax(gold, ranks), entropy)
    assert (listwise_softmax(gold.flip(1), ranks) > entropy).all()


def test_a_small_gold_temperature_asks_for_the_best_alone() -> None:
    scores, ranks = random_case(seed=4)
    expected = torch.nn.functional.cross_entropy(scores, ranks.argmin(1), reduction="none")
    torch.testing.assert_close(listwise_softmax(scores, ranks, 1e-3), expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_order_of_candidates_makes_no_difference(loss: Loss) -> None:
    scores, ranks = random_case(seed=5)
    shuffled = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(loss(scores[:, shuffled], ranks[:, shuffled], 1.0), loss(scores, ranks, 1.0))


@each_module
def test_half_types_and_extremes_stay_finite(module: Module) -> None:
    scores, ranks = random_case(seed=6, dtype=torch.float32)
    half = (scores * 1000).to(torch.bfloat16).requires_grad_()
    value = module(1.0)(half, ranks)
    assert value.dtype == torch.float32
    value.backward()
    assert half.grad is not None
    assert half.grad.isfinite().all()


@each_module
def test_no_item_gives_zero_with_a_graph(module: Module) -> None:
    scores = torch.zeros(0, N, requires_grad=True)
    value = module(1.0)(scores, torch.zeros(0, N, dtype=torch.long))
    assert value.item() == 0.0
    assert torch.autograd.grad(value, scores)[0].shape == (0, N)


def test_what_is_no_order_is_refused() -> None:
    scores = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="each row must hold 0 to 2 once"):
        pairwise_hinge(scores, torch.tensor([[0, 0, 1]]))
    with pytest.raises(ValueError, match="each row must hold 0 to 2 once"):
        top1_hinge(scores, torch.tensor([[1, 2, 3]]))
    with pytest.raises(ValueError, match="expected scores and ranks"):
        listwise_softmax(scores, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="margin must not be negative"):
        top1_hinge(scores, torch.tensor([[0, 1, 2]]), margin=-1.0)
    with pytest.raises(ValueError, match="gold_temperature must be positive"):
        ListwiseSoftmaxLoss(0.0)(scores, torch.tensor([[0, 1, 2]]))


def test_docstring_example() -> None:
    import doctest

    import idiomloss.ranking

    result = doctest.testmod(idiomloss.ranking)
    assert result.attempted > 0
    assert result.failed == 0
