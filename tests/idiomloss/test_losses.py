"""All losses in one harness: values and gradients of the loops, half types, wrong use, their docstrings."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from idiomloss import (
    AdaptiveTripletLoss,
    CandidateMasks,
    CoSENTLoss,
    CosineMSELoss,
    InfoNCELoss,
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1HingeLoss,
    Top1PrintedLoss,
    cosine_similarity,
    distillation_loss,
    label_groups,
    listwise_softmax,
    paired_cosine_similarity,
    pairwise_hinge,
    pairwise_printed,
    relational_distillation_loss,
    top1_hinge,
    top1_printed,
)
from tests.idiomloss import loops
from tests.idiomloss.harness import assert_nothing_learnt, assert_same, randn

Loss = Callable[..., Any]
SCORES = [3.0, 0.5, 3.0, 5.0, 1.0, 0.5]  # some are equal
SIZES = [(1, 2), (2, 1), (1, 0), (0, 1), (2, 2)]  # (correct, incorrect) of each group
ROWS = [  # (group, role) of each row
    (group, role)
    for group, (correct, incorrect) in enumerate(SIZES)
    for role in ("sentence", *["correct"] * correct, *["incorrect"] * incorrect)
]
MARGINS = (0.3, 0.4)
KINDS = ["all", "hard", "semihard", "easy"]


def ragged_masks() -> CandidateMasks:
    """Of 6 anchors and 23 candidates: anchor 0 has no positive, anchor 1 no negative."""
    kind = torch.randint(0, 4, (6, 23), generator=torch.Generator().manual_seed(1))
    positive, negative, hard = kind == 0, (kind == 1) | (kind == 2), kind == 2
    positive[0] = negative[1] = False
    return CandidateMasks(positive, negative, hard, 0)


def infonce(*options: Any, positives: Any = "mean", weights: Tensor | None = None) -> tuple[Loss, Loss]:
    names = ("temperature", "denominator", "hard_weight", "soft_weight")
    given: dict[str, Any] = dict(zip(names, options, strict=False))

    def ours(a: Tensor, c: Tensor) -> Tensor:
        loss: Tensor = InfoNCELoss(**given, positives=positives)(a, c, ragged_masks(), weights)
        return loss

    return ours, lambda a, c: loops.infonce(
        a, c, ragged_masks(), **given, positives_taken=positives, positive_weights=weights
    )


def ranking(module: Callable[[float], nn.Module], loop: Loss, option: float) -> tuple[Loss, Loss]:
    ranks = torch.rand(6, 5, generator=torch.Generator().manual_seed(2)).argsort(dim=1)

    def naive(scores: Tensor) -> Tensor:
        return loops.mean(loop(s, r, option) for s, r in zip(scores, ranks.tolist(), strict=True))

    return lambda scores: module(option)(scores, ranks), naive


def graded(loss: nn.Module, loop: Loss) -> tuple[Loss, Loss]:
    scores = torch.tensor(SCORES, dtype=torch.float64)
    return lambda a, b: loss(a, b, scores), lambda a, b: loop(a, b, SCORES)


WEIGHTS = torch.rand(6, 23, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
WEIGHTS[:, ::3] = 0.0
WEIGHTS[2] = 0.0  # an anchor whose positives all weigh nothing has no loss
TEACHER = randn(7, 8, seed=1).detach()
RANKING: list[tuple[Callable[[float], nn.Module], Loss]] = [
    (PairwiseHingeLoss, loops.pairwise),
    (ListwiseSoftmaxLoss, loops.listwise),
    (Top1HingeLoss, loops.top1),
    (partial(Top1HingeLoss, bounded=False), partial(loops.top1, bounded=False)),
    (PairwisePrintedLoss, loops.pairwise_printed),
    (partial(Top1PrintedLoss, sum_weight=0.3), partial(loops.top1_printed, sum_weight=0.3)),
]
DENOMINATORS: list[Any] = ["negatives", "own_positive", "all_positives"]
# The loss, its loop, and the shapes of what both take.
CASES: list[tuple[tuple[Loss, Loss], list[tuple[int, int]]]] = [
    *(
        (infonce(temperature, denominator, *weights), [(6, 8), (23, 8)])
        for denominator in DENOMINATORS
        for temperature, weights in ((1.0, (2.5, 0.5)), (0.05, (1.0, 1.0)), (0.2, (0.0, 1.0)))
    ),
    *(
        (infonce(0.2, denominator, positives=positives, weights=weights), [(6, 8), (23, 8)])
        for denominator, positives in product(DENOMINATORS, ["mean", "hardest"])
        for weights in (None, WEIGHTS)
    ),
    *((ranking(*pair, option), [(6, 5)]) for pair in RANKING for option in (0.3, 2.5)),
    (graded(CoSENTLoss(0.05), loops.cosent), [(6, 8)] * 2),
    (graded(CosineMSELoss(1, 5), loops.cosine_mse), [(6, 8)] * 2),
    *(
        ((lambda x, f=f: f(x, TEACHER[: len(x)]), lambda x, f=loop: f(x, TEACHER[: len(x)])), [(rows, 8)])
        for f, loop in (
            (distillation_loss, loops.distillation),
            (relational_distillation_loss, loops.relational),
        )
        for rows in (2, 7)
    ),
]


@pytest.mark.parametrize(("losses", "shapes"), CASES)
def test_value_and_gradient_are_those_of_the_loop(
    losses: tuple[Loss, Loss], shapes: list[tuple[int, int]]
) -> None:
    ours, loop = losses
    inputs = [randn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert_same(ours(*inputs), loop(*inputs), *inputs)
    # Half types are computed in float32: the only loss of precision is that of the inputs.
    for dtype in (torch.float16, torch.bfloat16):
        half = [x.detach().to(dtype).requires_grad_() for x in inputs]
        value = ours(*half)
        assert value.dtype != dtype
        torch.testing.assert_close(value, ours(*[x.float() for x in half]), check_dtype=False)
        gradients = torch.autograd.grad(value, half)
        assert all(gradient.dtype == dtype and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("kind", "scope", "distance", "weights"),
    [
        *product(KINDS, ["all", "within"], ["cosine", "euclidean"], [(2, 0.5, 3)]),
        *(("all", "all", "cosine", weights) for weights in ((1, 0, 0), (0, 1, 0))),
    ],
)
def test_adaptive_triplets_are_those_of_the_loops(kind: Any, scope: Any, distance: Any, weights: Any) -> None:
    x = randn(len(ROWS), 6)
    loss = AdaptiveTripletLoss(*MARGINS, distance, kind, scope, *weights)
    result = loss(x, label_groups(SIZES))
    expected, *counts = loops.adaptive_triplet(x, ROWS, kind, scope, distance, weights, MARGINS)
    assert [result.num_within, result.num_across] == counts
    assert counts[0]  # no comparison of nothing with nothing
    assert_same(result.loss, expected, x)
    half = x.detach().bfloat16().requires_grad_()
    value = loss(half, label_groups(SIZES)).loss
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(half.float(), label_groups(SIZES)).loss)
    assert torch.autograd.grad(value, half)[0].dtype == torch.bfloat16


def infonce_of_none(denominator: Any, has_negatives: int, anchors: Tensor) -> Tensor:
    """Without any positive."""
    none = torch.zeros(2, 3).bool()
    masks = CandidateMasks(none, none | bool(has_negatives), none, 0)
    loss: Tensor = InfoNCELoss(0.05, denominator)(anchors, randn(3, 8), masks)
    return loss


@pytest.mark.parametrize(
    ("loss", "inputs"),
    [
        *((module(1.0), [randn(0, 5), torch.zeros(0, 5).long()]) for module, _ in RANKING),
        (CoSENTLoss(), [randn(2, 8), randn(2, 8, seed=1), torch.ones(2)]),  # no pair is in order
        (distillation_loss, [randn(0, 8), randn(0, 8)]),
        (relational_distillation_loss, [randn(1, 8), randn(1, 8)]),
        *((partial(infonce_of_none, d, n), [randn(2, 8)]) for d, n in product(DENOMINATORS, (0, 1))),
        *(
            (lambda x, groups=groups: AdaptiveTripletLoss(property_weight=1.0)(x, groups).loss, [x])
            for groups in (label_groups([(1, 0)]), label_groups([(0, 2)]), label_groups([(1, 2)]))
            # The first two rows are one; the triplets of the last keep the margin by far.
            for x in [torch.eye(len(groups.labels))[[0, 0, *range(2, len(groups.labels))]].requires_grad_()]
        ),
    ],
)
def test_nothing_to_learn_is_zero_with_a_gradient_of_zero(loss: Loss, inputs: list[Tensor]) -> None:
    assert_nothing_learnt(loss(*inputs), inputs[0])


def test_similarities_at_their_edges() -> None:
    """Opposite vectors at a small temperature; only directions and relations count."""
    first = torch.eye(2, requires_grad=True)
    loss = CoSENTLoss(1e-3)(first, torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.tensor([0.0, 1.0]))
    assert loss.item() == pytest.approx(2 / 1e-3)
    assert torch.autograd.grad(loss, first)[0].isfinite().all()
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], requires_grad=True)
    assert distillation_loss(-teacher, teacher.detach()).item() == pytest.approx(2)
    turned = torch.tensor([[0.0, -2.0], [3.0, 0.0]])
    assert relational_distillation_loss(turned, torch.eye(2, 7)).item() == pytest.approx(0, abs=1e-12)
    for distil in (distillation_loss, relational_distillation_loss):
        distil(randn(3, 2, dtype=torch.float32), teacher).backward()  # type: ignore[no-untyped-call]
        assert teacher.grad is None


def test_rankings_by_hand() -> None:
    """Candidates in gold order, scores 3, 1, 2, 0, 0; margin 1; the mean over items."""
    scores, ranks = torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]), torch.arange(5)[None]
    # Of the ten pairs (1, 2) falls short by 2, and (3, 4) by 1.
    assert pairwise_hinge(scores, ranks).item() == pytest.approx(0.3)
    assert top1_hinge(scores, ranks.flip(1)).item() == pytest.approx((4 + 2 + 3 + 1) / 4)
    assert top1_printed(scores, ranks, sum_weight=0.0).item() == -3.0  # no hinge, and the best's score
    for loss in (PairwiseHingeLoss(), Top1HingeLoss(), PairwisePrintedLoss(), Top1PrintedLoss()):
        one, other = loss(scores, ranks), loss(scores, ranks.flip(1))
        both = loss(scores.repeat(2, 1), torch.cat([ranks, ranks.flip(1)]))
        assert both.item() == pytest.approx((one + other).item() / 2)


def test_an_anchor_whose_negatives_weigh_nothing_has_none() -> None:
    positive = torch.tensor([[True, False]])
    masks = CandidateMasks(positive, ~positive, ~positive, 0)
    for denominator in DENOMINATORS:
        loss = InfoNCELoss(denominator=denominator, hard_weight=0.0)
        assert loss(torch.ones(1, 2), torch.ones(2, 2), masks) == 0


def test_autocast_does_not_round_similarities() -> None:
    a, b = randn(4, 8, dtype=torch.float32), randn(4, 8, seed=1, dtype=torch.float32)
    for similarity in (cosine_similarity, paired_cosine_similarity):
        exact = similarity(a, b)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(similarity(a, b), exact)
    groups = label_groups([(1, 2)])
    exact = AdaptiveTripletLoss(triplets="all")(a, groups).loss
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(AdaptiveTripletLoss(triplets="all")(a, groups).loss, exact)


PAIRS = torch.ones(6, 2), torch.ones(23, 2), ragged_masks()
ZEROS, RANKS = torch.zeros(1, 3), torch.arange(3)[None]


def test_wrong_use_is_refused() -> None:
    for wrong, named in (
        (lambda: CoSENTLoss(0.0), "temperature"),
        (lambda: CosineMSELoss(1, 1), "low"),
        (lambda: cosine_similarity(torch.zeros(2, 3), torch.zeros(2, 4)), "got"),
        (lambda: distillation_loss(torch.zeros(2, 3), ZEROS), "got"),
        (lambda: relational_distillation_loss(torch.zeros(2, 3), ZEROS), "got"),
        (lambda: InfoNCELoss(temperature=0.0)(*PAIRS), "temperature"),
        (lambda: InfoNCELoss(hard_weight=-1.0)(*PAIRS), "weight"),
        (lambda: InfoNCELoss(denominator="other")(*PAIRS), "denominator"),  # type: ignore[arg-type]
        (lambda: InfoNCELoss(positives="some")(*PAIRS), "positives"),  # type: ignore[arg-type]
        (lambda: AdaptiveTripletLoss()(torch.randn(3, 4), label_groups([(1, 0)])), "3 embeddings"),
        (lambda: AdaptiveTripletLoss(-0.1), "margins"),
        (lambda: AdaptiveTripletLoss(triplets="some"), "some"),  # type: ignore[arg-type]
        (lambda: AdaptiveTripletLoss(scope="some"), "some"),  # type: ignore[arg-type]
        (lambda: AdaptiveTripletLoss(mining_distance="l1"), "l1"),  # type: ignore[arg-type]
        (lambda: pairwise_hinge(ZEROS, torch.tensor([[0, 0, 1]])), "ranks: "),
        (lambda: listwise_softmax(ZEROS, torch.arange(3)), "ranks"),
        (lambda: top1_hinge(ZEROS, RANKS, margin=-1.0), "margin"),
        (lambda: pairwise_printed(ZEROS, RANKS, margin=-1.0), "margin"),
        (lambda: top1_printed(ZEROS, RANKS, sum_weight=-0.1), "sum_weight"),
        (lambda: listwise_softmax(ZEROS, RANKS, gold_temperature=0.0), "gold_temperature"),
    ):
        with pytest.raises(ValueError, match=named):
            wrong()
