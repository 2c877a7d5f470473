"""InfoNCE against triple loops, by gradcheck, and at its edges."""

import math
import subprocess
import sys
from itertools import product

import pytest
import torch
from torch import Tensor

from idiomloss import (
    CandidateMasks,
    InfoNCELoss,
    candidate_masks,
    cosine_similarity,
    flatten_tuples,
    infonce_terms,
)

DENOMINATORS = ["negatives", "own_positive", "all_positives"]
B, M, D = 6, 23, 8


def random_case(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, CandidateMasks]:
    """Anchors, candidates and ragged masks: anchor 0 has no positive, anchor 1 no negative."""
    g = torch.Generator().manual_seed(seed)
    anchors = torch.randn(B, D, generator=g, dtype=dtype)
    candidates = torch.randn(M, D, generator=g, dtype=dtype)
    kind = torch.randint(0, 4, (B, M), generator=g)  # 0 positive, 1 soft, 2 hard, 3 nothing
    positive, negative, hard = kind == 0, (kind == 1) | (kind == 2), kind == 2
    positive[0] = False
    negative[1] = False
    return anchors, candidates, CandidateMasks(positive, negative, hard, 0)


def naive(
    anchors: Tensor,
    candidates: Tensor,
    masks: CandidateMasks,
    temperature: float,
    denominator: str,
    hard_weight: float,
    soft_weight: float,
    positives_taken: str = "mean",
    positive_weights: Tensor | None = None,
) -> Tensor:
    """The docstring's formula, pair by pair."""

    def s(i: int, j: int) -> Tensor:
        a, c = anchors[i], candidates[j]
        cosine: Tensor = (a @ c) / (a.norm() * c.norm())
        return cosine / temperature

    losses = []
    for i in range(len(anchors)):
        positives = [j for j in range(len(candidates)) if masks.positive[i, j]]
        negatives = [j for j in range(len(candidates)) if masks.negative[i, j]]
        weighted = [(hard_weight if masks.hard[i, j] else soft_weight) * s(i, j).exp() for j in negatives]
        if not positives or (denominator == "negatives" and not negatives):
            continue
        per_positive, shares = [], []
        counted = [p for p in positives if positive_weights is None or positive_weights[i, p] > 0]
        if not counted:
            continue
        if positives_taken == "hardest":
            counted = [min(counted, key=lambda p: s(i, p).item())]
        for p in counted:
            below = sum(weighted, start=torch.zeros((), dtype=anchors.dtype))
            if denominator == "own_positive":
                below = below + s(i, p).exp()
            if denominator == "all_positives":
                below = below + sum(s(i, q).exp() for q in positives)
            per_positive.append(-(s(i, p).exp() / below).log())
            shares.append(1.0 if positive_weights is None else float(positive_weights[i, p]))
        weighted_sum = sum(share * term for share, term in zip(shares, per_positive, strict=True))
        losses.append(torch.as_tensor(weighted_sum / sum(shares)))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("denominator", "temperature", "weights"),
    list(product(DENOMINATORS, [1.0, 0.05], [(1.0, 1.0), (2.5, 0.5)])),
)
def test_value_and_gradient_equal_the_naive_loop(
    denominator: str, temperature: float, weights: tuple[float, float]
) -> None:
    anchors, candidates, masks = random_case(seed=1)
    inputs = anchors.requires_grad_(), candidates.requires_grad_()
    loss = InfoNCELoss(temperature, denominator, *weights)(*inputs, masks)  # type: ignore[arg-type]
    expected = naive(*inputs, masks, temperature, denominator, *weights)
    torch.testing.assert_close(loss, expected)
    ours, theirs = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("positives", ["mean", "hardest"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_weighted_and_hardest_positives_equal_the_naive_loop(
    denominator: str, weighted: bool, positives: str
) -> None:
    anchors, candidates, masks = random_case(seed=9)
    weights = None
    if weighted:
        weights = torch.rand(B, M, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        weights[:, ::3] = 0.0
        weights[2] = 0.0  # an anchor whose positives all weigh nothing has no loss
    inputs = anchors.requires_grad_(), candidates.requires_grad_()
    loss = InfoNCELoss(0.2, denominator, positives=positives)(*inputs, masks, weights)  # type: ignore[arg-type]
    expected = naive(*inputs, masks, 0.2, denominator, 1.0, 1.0, positives, weights)
    torch.testing.assert_close(loss, expected)
    ours, theirs = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_gradcheck(denominator: str) -> None:
    anchors, candidates, masks = random_case(seed=2)
    loss = InfoNCELoss(0.5, denominator, 2.0, 0.5)  # type: ignore[arg-type]
    inputs = anchors.requires_grad_(), candidates.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, c: loss(a, c, masks), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(dtype: torch.dtype) -> None:
    anchors, candidates, masks = random_case(seed=3, dtype=torch.float32)
    a, c = anchors.to(dtype).requires_grad_(), candidates.to(dtype).requires_grad_()
    loss = InfoNCELoss(0.05)(a, c, masks)
    assert loss.dtype == torch.float32
    # The only loss of precision is that of the inputs.
    expected = InfoNCELoss(0.05)(a.detach().float(), c.detach().float(), masks)
    torch.testing.assert_close(loss, expected, rtol=0, atol=0)
    loss.backward()
    assert a.grad is not None
    assert a.grad.dtype == dtype
    assert a.grad.isfinite().all()


def test_autocast_does_not_round_similarities() -> None:
    anchors, candidates, _ = random_case(seed=4, dtype=torch.float32)
    exact = cosine_similarity(anchors, candidates)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(cosine_similarity(anchors, candidates), exact)


def test_printed_equation_by_hand() -> None:
    """L = -log e^{s_p} / (e^{s_1} + e^{s_2}), s = cosine: the paper's, with right angles and 45°."""
    anchor = torch.tensor([[1.0, 0.0]])
    candidates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    masks = candidate_masks(
        1, torch.zeros(3, dtype=torch.long), torch.tensor([True, False, False]), in_batch="none"
    )
    loss = InfoNCELoss(temperature=1.0, denominator="negatives")(anchor, candidates, masks)
    assert loss.item() == pytest.approx(math.log(1 + math.e ** math.sqrt(0.5)) - 1, abs=1e-6)


def test_released_form_is_cross_entropy() -> None:
    """Own negatives and all positives of the batch in the denominator: a softmax over candidates."""
    g = torch.Generator().manual_seed(0)
    anchors, positives = torch.randn(4, D, generator=g), torch.randn(4, D, generator=g)
    negatives = torch.randn(4, 5, D, generator=g)
    candidates, owner, is_positive = flatten_tuples(positives, negatives)
    masks = candidate_masks(4, owner, is_positive, in_batch="positives", false_negatives="keep")
    loss = InfoNCELoss(0.05, "own_positive")(anchors, candidates, masks)

    cosine = torch.nn.functional.cosine_similarity
    in_batch = cosine(anchors[:, None], positives[None], dim=-1)  # (4, 4)
    to_negatives = cosine(anchors[:, None], negatives, dim=-1)  # (4, 5)
    logits = torch.cat([in_batch, to_negatives], 1) / 0.05
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(4))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_nothing_to_learn_gives_zero_with_a_finite_gradient(denominator: str) -> None:
    anchors, candidates, masks = random_case(seed=5)
    nothing = torch.zeros_like(masks.positive)
    anchors.requires_grad_()
    for empty in (
        CandidateMasks(nothing, masks.negative, masks.hard, 0),
        CandidateMasks(nothing, nothing, nothing, 0),
    ):
        loss = InfoNCELoss(0.05, denominator)(anchors, candidates, empty)  # type: ignore[arg-type]
        assert loss.item() == 0.0
        (gradient,) = torch.autograd.grad(loss, anchors)
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_anchor_without_negatives_pulls_at_nothing_but_stays_finite() -> None:
    anchors, candidates, masks = random_case(seed=6)
    anchors.requires_grad_()
    terms, valid = infonce_terms(cosine_similarity(anchors, candidates), masks)
    assert valid.tolist() == [False, True, True, True, True, True]
    assert terms[1].item() == 0.0  # own_positive, no negatives: probability 1
    (gradient,) = torch.autograd.grad(terms.sum(), anchors)
    assert gradient.isfinite().all()


def test_extreme_similarities_stay_finite() -> None:
    same = torch.ones(2, D, dtype=torch.float32).requires_grad_()
    masks = CandidateMasks(
        torch.eye(2, dtype=torch.bool), ~torch.eye(2, dtype=torch.bool), torch.zeros(2, 2).bool(), 0
    )
    loss = InfoNCELoss(temperature=1e-3)(same, -same.detach(), masks)
    loss.backward()
    assert loss.isfinite()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_zero_weight_leaves_negatives_out() -> None:
    anchors, candidates, masks = random_case(seed=7)
    without = CandidateMasks(masks.positive, masks.negative & ~masks.hard, masks.hard, 0)
    torch.testing.assert_close(
        InfoNCELoss(hard_weight=0.0)(anchors, candidates, masks),
        InfoNCELoss()(anchors, candidates, without),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"hard_weight": -1.0},
        {"denominator": "other"},
        {"positives": "some"},
    ],
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    anchors, candidates, masks = random_case(seed=8)
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[-1]):
        InfoNCELoss(**options)(anchors, candidates, masks)  # type: ignore[arg-type]


@pytest.mark.slow
def test_importable_with_torch_and_metric_learning_alone() -> None:
    """`import idiomloss` must not pull in the trainer or anything it stands on."""
    code = (
        "import sys, idiomloss\n"
        "heavy = {'train', 'transformers', 'sentence_transformers', 'hydra', 'accelerate', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_docstring_example() -> None:
    import doctest

    import idiomloss.infonce

    result = doctest.testmod(idiomloss.infonce)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_positive_that_is_its_anchor_trains() -> None:
    """SimCSE: two views of each text, one of which occurs twice; value and gradient against a loop."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([0, 1, 2, 0])
    ours = torch.randn(8, 5, dtype=torch.float64, generator=generator).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    owner = torch.arange(4)
    masks = candidate_masks(
        4, owner, torch.ones(4, dtype=torch.bool), anchor_ids=ids, candidate_ids=ids, in_batch="all"
    )
    loss = InfoNCELoss(temperature=0.1)(ours[:4], ours[4:], masks)
    terms = []
    for i in range(4):
        s = [torch.cosine_similarity(theirs[i], theirs[4 + j], dim=0) / 0.1 for j in range(4)]
        others = [s[j].exp() for j in range(4) if ids[j] != ids[i]]
        terms.append(-(s[i].exp() / (s[i].exp() + torch.stack(others).sum())).log())
    expected = torch.stack(terms).mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None
    assert ours.grad.abs().amin(1).min() > 0
    torch.testing.assert_close(ours.grad, theirs.grad)
