"""The adaptive triplet loss against loops over all triples: value, gradient, what is mined."""

from __future__ import annotations

import doctest
import itertools

import pytest
import torch
from torch import Tensor

import idiomloss.triplet
from idiomloss import AdaptiveTripletLoss, GroupLabels, label_groups
from idiomloss.triplet import MiningDistance, Scope, Triplets

SIZES = [(1, 2), (2, 1), (1, 0), (0, 1), (2, 2)]  # (correct, incorrect) of each group
MARGIN, MINING_MARGIN = 0.3, 0.4


def embeddings(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = sum(1 + correct + incorrect for correct, incorrect in SIZES)
    return torch.randn(rows, 6, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    similarity: Tensor = (a @ b) / (a.norm() * b.norm())
    return similarity


def roles() -> list[tuple[int, str]]:
    """(group, role) of each row: the sentence, its correct, its incorrect paraphrases."""
    rows = []
    for group, (correct, incorrect) in enumerate(SIZES):
        rows += [(group, "sentence"), *[(group, "correct")] * correct, *[(group, "incorrect")] * incorrect]
    return rows


def naive(
    x: Tensor, kind: Triplets, scope: Scope, distance: MiningDistance, weights: tuple[float, float, float]
) -> tuple[Tensor, int, int]:
    rows = roles()
    found: list[Tensor] = []
    within = across = 0
    for a, p, n in itertools.permutations(range(len(rows)), 3):
        if rows[a][0] != rows[p][0] or "incorrect" in (rows[a][1], rows[p][1]):
            continue  # anchor and positive: the sentence and its correct paraphrases
        if rows[n][0] == rows[a][0] and rows[n][1] != "incorrect":
            continue
        if scope == "within" and rows[n][0] != rows[a][0]:
            continue
        sim_p, sim_n = cosine(x[a], x[p]), cosine(x[a], x[n])
        if distance == "cosine":
            gap = (sim_p - sim_n).item()
        else:
            unit = [x[i] / x[i].norm() for i in (a, p, n)]
            gap = ((unit[0] - unit[2]).norm() - (unit[0] - unit[1]).norm()).item()
        is_mined = {
            "all": gap <= MINING_MARGIN,
            "hard": gap <= 0,
            "semihard": 0 < gap <= MINING_MARGIN,
            "easy": gap > MINING_MARGIN,
        }[kind]
        if not is_mined:
            continue
        within, across = within + (rows[n][0] == rows[a][0]), across + (rows[n][0] != rows[a][0])
        term = sim_n - sim_p + MARGIN
        if term > 0:
            found.append(term)
    triplet = torch.stack(found).mean() if found else x.sum() * 0
    squares = [
        (cosine(x[i], x[n]) - cosine(x[c], x[n]).detach()) ** 2
        for i, c, n in itertools.permutations(range(len(rows)), 3)
        if rows[i][0] == rows[c][0] == rows[n][0]
        and (rows[i][1], rows[c][1], rows[n][1]) == ("sentence", "correct", "incorrect")
    ]
    gaps = [
        1 - cosine(x[i], x[c])
        for i, c in itertools.permutations(range(len(rows)), 2)
        if rows[i][0] == rows[c][0] and (rows[i][1], rows[c][1]) == ("sentence", "correct")
    ]
    terms = [triplet, torch.stack(squares).mean(), torch.stack(gaps).mean()]
    return torch.stack([w * t for w, t in zip(weights, terms, strict=True)]).sum(), within, across


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (2.0, 0.5, 3.0)])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("scope", ["all", "within"])
@pytest.mark.parametrize("kind", ["all", "hard", "semihard", "easy"])
def test_value_gradient_and_counts_equal_the_loops(
    kind: Triplets, scope: Scope, distance: MiningDistance, weights: tuple[float, float, float]
) -> None:
    ours, theirs = embeddings(), embeddings()
    loss = AdaptiveTripletLoss(MARGIN, MINING_MARGIN, distance, kind, scope, *weights)
    result = loss(ours, label_groups(SIZES))
    expected, within, across = naive(theirs, kind, scope, distance, weights)
    assert (result.num_within, result.num_across) == (within, across)
    assert result.loss.item() == pytest.approx(expected.item(), abs=1e-9)
    result.loss.backward()
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-9, rtol=0)


def test_the_loops_have_something_to_find() -> None:
    """So that the comparison above is no comparison of nothing with nothing."""
    counts = [
        naive(embeddings(), kind, "all", "cosine", (1.0, 0.0, 0.0))[1:]
        for kind in ("hard", "semihard", "easy")
    ]
    assert all(within and across for within, across in counts)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)])
def test_lower_precision_inputs_are_computed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    x = embeddings(dtype=dtype)
    result = AdaptiveTripletLoss(property_weight=1.0, correct_weight=1.0)(x, label_groups(SIZES))
    assert result.loss.dtype == torch.float32
    same_numbers = x.detach().double().requires_grad_()
    expected, within, across = naive(same_numbers, "all", "all", "cosine", (1.0, 1.0, 1.0))
    assert (result.num_within, result.num_across) == (within, across)
    assert result.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    result.loss.backward()
    expected.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad.double(), same_numbers.grad, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("groups", [label_groups([(1, 0)]), label_groups([(0, 2)]), label_groups([(1, 2)])])
def test_nothing_mined_is_zero_with_a_graph(groups: GroupLabels) -> None:
    """No negative, no positive, or only triplets that keep the margin by far."""
    x = torch.eye(len(groups.labels))
    x[1] = x[0]
    x.requires_grad_()
    result = AdaptiveTripletLoss(property_weight=1.0)(x, groups)
    assert (result.loss.item(), result.num_within, result.num_across) == (0.0, 0, 0)
    result.loss.backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_a_group_without_an_incorrect_paraphrase_draws_its_correct_one_near() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    result = AdaptiveTripletLoss(correct_weight=0.5)(x, label_groups([(1, 0)]))
    assert result.loss.item() == pytest.approx(0.5)
    result.loss.backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_a_step_down_the_gradient_brings_the_correct_paraphrase_nearer() -> None:
    """The signs, which the paper's print turns round."""
    x = torch.tensor([[1.0, 0.2, 0.1], [0.3, 1.0, 0.2], [0.9, 0.1, 0.5]], requires_grad=True)
    AdaptiveTripletLoss()(x, label_groups([(1, 1)])).loss.backward()
    assert x.grad is not None
    y = (x - 0.1 * x.grad).detach()
    assert cosine(y[0], y[1]) > cosine(x[0], x[1])
    assert cosine(y[0], y[2]) < cosine(x[0], x[2])


def test_labels() -> None:
    made = label_groups([(1, 2), (0, 0), (2, 1)])
    assert made.labels.tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 5]
    assert made.groups.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2]
    assert made.is_sentence.tolist() == [True, False, False, False, True, True, False, False, False]


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="3 embeddings but 2 labels"):
        AdaptiveTripletLoss()(torch.randn(3, 4), label_groups([(1, 0)]))
    with pytest.raises(ValueError, match="must not be negative"):
        AdaptiveTripletLoss(margin=-0.1)


def test_the_docstrings_example_runs() -> None:
    assert doctest.testmod(idiomloss.triplet).attempted
    assert not doctest.testmod(idiomloss.triplet).failed


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
    x = 0.01 * torch.randn(len(groups.labels), 9, generator=torch.Generator().manual_seed(0))
    x[range(len(x)), groups.labels] += 1  # each label has its direction: all triplets keep the margin
    result = loss(x.requires_grad_(), groups)
    result.loss.backward()
    assert x.grad is not None
    assert result.is_empty == is_empty == (not x.grad.any())
    assert loss.can_learn(groups) != is_hopeless


def test_texts_of_one_group_give_no_triplets_across_groups() -> None:
    groups = label_groups([(1, 0), (0, 1)])
    assert AdaptiveTripletLoss().can_learn(groups)
    assert not AdaptiveTripletLoss(scope="within").can_learn(groups)
    assert not AdaptiveTripletLoss(triplets="easy").can_learn(groups)
    assert AdaptiveTripletLoss(triplets="easy", margin=0.5).can_learn(groups)
