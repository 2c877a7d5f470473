"""The ranking losses, sound and as printed, against naive loops, by hand, by gradcheck, at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from idiomloss import (
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1HingeLoss,
    Top1PrintedLoss,
    listwise_softmax,
    pairwise_hinge,
    pairwise_printed,
    top1_hinge,
    top1_printed,
)
from tests.idiomloss.harness import assert_nothing_learnt, assert_same

B, N, ALPHA = 6, 5, 0.3


def random_case(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    ranks = torch.stack([torch.randperm(N, generator=g) for _ in range(B)])
    return torch.randn(B, N, generator=g, dtype=dtype).requires_grad_(), ranks


def hinge(value: Tensor) -> Tensor:
    return value if value > 0 else 0 * value


# One item's loss, from its scores, its ranks and the option.


def naive_pairwise(s: Tensor, r: list[int], margin: float) -> Tensor:
    terms = [hinge(margin - (s[i] - s[j])) for i in range(N) for j in range(N) if r[i] < r[j]]
    return torch.stack(terms).mean()


def naive_listwise(s: Tensor, r: list[int], temperature: float) -> Tensor:
    weights = [math.exp((N - 1 - r[i]) / temperature) for i in range(N)]
    total = torch.stack([s[i].exp() for i in range(N)]).sum()
    return torch.stack([-w / sum(weights) * (s[i].exp() / total).log() for i, w in enumerate(weights)]).sum()


def naive_top1(s: Tensor, r: list[int], margin: float, *, bounded: bool = True) -> Tensor:
    best = r.index(0)
    terms = [margin - (s[best] - s[j]) for j in range(N) if j != best]
    return torch.stack([hinge(term) if bounded else term for term in terms]).mean()


def naive_pairwise_printed(s: Tensor, r: list[int], margin: float) -> Tensor:
    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    return torch.stack([hinge(margin - (s[i] - s[j])) * (1 if r[j] > r[i] else -1) for i, j in pairs]).mean()


def naive_top1_printed(s: Tensor, r: list[int], margin: float) -> Tensor:
    best = r.index(0)
    hinges = [hinge(margin + s[j] - s[best]) for j in range(N) if j != best]
    return torch.stack(hinges).sum() - s[best] + ALPHA * s.sum()


Module = Callable[[float], nn.Module]
MODULES: dict[Module, Callable[[Tensor, list[int], float], Tensor]] = {
    PairwiseHingeLoss: naive_pairwise,
    ListwiseSoftmaxLoss: naive_listwise,
    Top1HingeLoss: naive_top1,
    partial(Top1HingeLoss, bounded=False): partial(naive_top1, bounded=False),
    PairwisePrintedLoss: naive_pairwise_printed,
    partial(Top1PrintedLoss, sum_weight=ALPHA): naive_top1_printed,
}
each_module = pytest.mark.parametrize("module", MODULES)


@each_module
@pytest.mark.parametrize("option", [0.3, 1.0, 2.5])
def test_equals_the_naive_loop(module: Module, option: float) -> None:
    scores, ranks = random_case(seed=1)
    terms = [MODULES[module](s, r, option) for s, r in zip(scores, ranks.tolist(), strict=True)]
    assert_same(module(option)(scores, ranks), torch.stack(terms).mean(), scores)
    shuffled = torch.tensor([3, 0, 4, 1, 2])  # the order of candidates makes no difference
    again = module(option)(scores[:, shuffled], ranks[:, shuffled])
    torch.testing.assert_close(again, module(option)(scores, ranks))


@each_module
def test_edges(module: Module) -> None:
    """Gradients by differences; half types stay finite; no item gives zero."""
    scores, ranks = random_case(seed=2)
    assert torch.autograd.gradcheck(lambda s: module(0.7)(s, ranks), (scores,))
    half = (1000 * scores.detach()).to(torch.bfloat16).requires_grad_()
    value = module(1.0)(half, ranks)
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert torch.autograd.grad(value, half)[0].isfinite().all()
    assert_nothing_learnt(module(1.0)(scores[:0], ranks[:0]), scores)


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


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        *((partial(loss, ranks=torch.tensor([[0, 0, 1]])), "ranks") for loss in (pairwise_hinge, top1_hinge)),
        (partial(listwise_softmax, ranks=torch.tensor([0, 1, 2])), "ranks"),
        (partial(top1_hinge, margin=-1.0), "margin"),
        (partial(pairwise_printed, margin=-1.0), "margin"),
        (partial(top1_printed, sum_weight=-0.1), "sum_weight"),
        (partial(listwise_softmax, gold_temperature=0.0), "gold_temperature"),
    ],
)
def test_wrong_use_is_refused(wrong: Callable[..., Tensor], argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        wrong(torch.zeros(1, 3), **({} if "ranks" in wrong.keywords else {"ranks": torch.arange(3)[None]}))  # type: ignore[attr-defined]
