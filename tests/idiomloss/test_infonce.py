"""Candidate masks pair by pair; InfoNCE by hand, as cross-entropy and at its edges."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from idiomloss import (
    CandidateMasks,
    InfoNCELoss,
    candidate_masks,
    cosine_similarity,
    flatten_tuples,
)
from tests.idiomloss.harness import assert_same, randn
from tests.idiomloss.test_losses import ragged_masks

D = 8


def random_labels(seed: int) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=g)

    return {
        "owner": draw(8, 40),
        "is_positive": draw(3, 40) == 0,
        "anchor_labels": torch.stack([draw(3, 8), draw(2, 8)], 1),
        "candidate_labels": torch.stack([draw(3, 40), draw(2, 40)], 1),
        "anchor_ids": draw(30, 8),
        "candidate_ids": draw(30, 40),
    }


@pytest.mark.parametrize(
    ("in_batch", "false_negatives"),
    [("none", "mask"), ("positives", "keep"), ("positives", "positive"), ("all", "mask"), ("all", "keep")],
)
def test_masks_follow_the_rules_pair_by_pair(in_batch: Any, false_negatives: Any) -> None:
    batch = random_labels(0)
    own = (batch["is_positive"] & (batch["owner"] == 3)).nonzero()[0]
    batch["candidate_ids"][own] = batch["anchor_ids"][3]  # a positive that is its own anchor
    masks = candidate_masks(8, **batch, in_batch=in_batch, false_negatives=false_negatives)
    num_false = 0
    for i, j in product(range(8), range(40)):
        is_owned, drawn_positive = batch["owner"][j] == i, bool(batch["is_positive"][j])
        idiom, meaning = (batch["anchor_labels"][i] == batch["candidate_labels"][j]).tolist()
        positive = is_owned and drawn_positive
        negative = is_owned and not drawn_positive
        if not is_owned and (in_batch == "all" or (in_batch == "positives" and drawn_positive)):
            negative = True
        if batch["anchor_ids"][i] == batch["candidate_ids"][j]:  # a positive only if it was drawn as such
            negative = False
        own_positives = batch["candidate_ids"][batch["is_positive"] & (batch["owner"] == i)]
        like_a_positive = false_negatives != "keep" and batch["candidate_ids"][j] in own_positives
        if negative and ((idiom and meaning) or like_a_positive):
            num_false += 1
            negative = false_negatives == "keep"
            positive = positive or false_negatives == "positive"
        found = [mask[i, j].item() for mask in (masks.positive, masks.negative, masks.hard)]
        assert found == [positive, negative, idiom and not meaning]
    assert masks.num_false_negatives == num_false > 0


def test_flatten_tuples_drops_padding_and_keeps_owners() -> None:
    positives = torch.arange(6.0).reshape(3, 2)
    negatives = torch.arange(100.0, 118.0).reshape(3, 3, 2)
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    candidates, owner, is_positive = flatten_tuples(positives, negatives, mask)
    assert owner.tolist() == [0, 1, 2, 0, 0, 2, 2, 2]
    assert is_positive.tolist() == [True] * 3 + [False] * 5
    assert candidates[:, 0].tolist() == [0, 2, 4, 100, 102, 112, 114, 116]
    _, owner, is_positive = flatten_tuples(torch.randn(3, 2, 4))  # several positives
    assert owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert is_positive.all()


def test_wrong_masks_are_refused() -> None:
    for argument, change in (
        ("anchor_labels", {"anchor_labels": None}),
        ("candidate_ids", {"candidate_ids": None}),
        ("anchor_labels", {"anchor_labels": torch.zeros(5, 2)}),
        ("is_positive", {"is_positive": torch.zeros(1).bool()}),
        ("in_batch", {"in_batch": "some"}),
        ("false_negatives", {"false_negatives": "drop"}),
    ):
        with pytest.raises(ValueError, match=argument):
            candidate_masks(8, **(random_labels(1) | change))


def test_anchor_weights_are_those_of_a_mean() -> None:
    anchors, candidates, masks = randn(6, D), randn(23, D, seed=1), ragged_masks()
    weights = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.5, 3.0])
    terms, valid = InfoNCELoss().terms(cosine_similarity(anchors, candidates), masks)
    share = weights * valid
    ours = InfoNCELoss()(anchors, candidates, masks, anchor_weights=weights)
    assert_same(ours, (share * terms).sum() / share.sum(), anchors)


def test_printed_equation_by_hand() -> None:
    """L = -log e^{s_p} / (e^{s_1} + e^{s_2}), s = cosine: the paper's, with right angles and 45°."""
    candidates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    masks = candidate_masks(1, torch.zeros(3).long(), torch.tensor([True, False, False]), in_batch="none")
    loss = InfoNCELoss(temperature=1.0, denominator="negatives")(candidates[:1], candidates, masks)
    assert loss.item() == pytest.approx(math.log(1 + math.e ** math.sqrt(0.5)) - 1, abs=1e-6)


def test_rows_at_the_edges_stay_finite() -> None:
    """An anchor without negatives; opposite vectors at a temperature of 0.001."""
    anchors, candidates, masks = randn(6, D), randn(23, D, seed=1), ragged_masks()
    terms, valid = InfoNCELoss().terms(cosine_similarity(anchors, candidates), masks)
    assert valid.tolist() == [False, True, True, True, True, True]
    assert terms[1].item() == 0.0  # own_positive, no negatives: probability 1
    assert torch.autograd.grad(terms.sum(), anchors)[0].isfinite().all()
    same, eye = torch.ones(2, D, requires_grad=True), torch.eye(2, dtype=torch.bool)
    loss = InfoNCELoss(temperature=1e-3)(same, -same.detach(), CandidateMasks(eye, ~eye, eye & ~eye, 0))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, same)[0].isfinite().all()
