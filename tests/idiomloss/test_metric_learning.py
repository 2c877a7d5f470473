"""The losses in pytorch-metric-learning's form, against the plain ones and a loop."""

from __future__ import annotations

import doctest

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from torch import Tensor

import idiomloss.metric_learning
from idiomloss import AdaptiveTripletLoss, InfoNCELoss, candidate_masks, label_groups
from idiomloss.metric_learning import IdiomInfoNCELoss, WithinGroupMiner, group_of_label, meaning_labels

IDIOMS = torch.tensor([0, 0, 0, 0, 1, 1, 2])
MEANINGS = torch.tensor([0, 0, 1, 1, 1, 1, 0])  # the last one has no positive


def embeddings(rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("hard_weight", [1.0, 3.0])
def test_infonce_is_that_of_every_text_with_all_others(hard_weight: float) -> None:
    x = embeddings(7)
    pairs = torch.stack([IDIOMS, MEANINGS], 1)
    ids = torch.arange(7)
    masks = candidate_masks(
        7,
        torch.full((7,), -1),
        torch.zeros(7, dtype=torch.bool),
        anchor_labels=pairs,
        candidate_labels=pairs,
        anchor_ids=ids,
        candidate_ids=ids,
        in_batch="all",
        false_negatives="positive",
    )
    plain = InfoNCELoss(temperature=0.3, hard_weight=hard_weight)(x, x, masks)
    ours = IdiomInfoNCELoss(temperature=0.3, hard_weight=hard_weight)(x, meaning_labels(IDIOMS, MEANINGS))
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(plain, x))


def test_infonce_takes_a_miners_triplets() -> None:
    """Only the mined pairs stand in the sum: here one positive and one negative for two anchors."""
    x = embeddings(7)
    labels = meaning_labels(IDIOMS, MEANINGS)
    mined = torch.tensor([0, 4]), torch.tensor([1, 5]), torch.tensor([2, 6])
    value = IdiomInfoNCELoss(temperature=1.0)(x, labels, mined)
    s = torch.nn.functional.cosine_similarity
    terms = [
        torch.nn.functional.softplus(s(x[a], x[n], 0) - s(x[a], x[p], 0))
        for a, p, n in zip(*mined, strict=True)
    ]
    torch.testing.assert_close(value, torch.stack(terms).mean())


def test_infonce_without_any_positive_is_zero() -> None:
    x = embeddings(3)
    value = IdiomInfoNCELoss()(x, torch.tensor([0, 2, 4]))
    assert value.item() == 0
    value.backward()


def test_references_are_the_candidates() -> None:
    x, references = embeddings(7), embeddings(5, seed=1)
    idioms, meanings = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 1, 0])
    masks = candidate_masks(
        7,
        torch.full((5,), -1),
        torch.zeros(5, dtype=torch.bool),
        anchor_labels=torch.stack([IDIOMS, MEANINGS], 1),
        candidate_labels=torch.stack([idioms, meanings], 1),
        in_batch="all",
        false_negatives="positive",
    )
    ours = IdiomInfoNCELoss(hard_weight=2.0)(
        x,
        meaning_labels(IDIOMS, MEANINGS),
        ref_emb=references,
        ref_labels=meaning_labels(idioms, meanings),
    )
    torch.testing.assert_close(ours, InfoNCELoss(hard_weight=2.0)(x, references, masks))


def test_infonce_refuses_a_distance() -> None:
    with pytest.raises(TypeError, match="cosine"):
        IdiomInfoNCELoss(distance=LpDistance())


@pytest.mark.parametrize("scope", ["all", "within"])
def test_the_librarys_triplet_loss_with_our_miner_is_ours(scope: str) -> None:
    groups = label_groups([(1, 2), (2, 1), (1, 0), (0, 1), (2, 2)])
    x = embeddings(len(groups.labels))
    miner = TripletMarginMiner(margin=0.4, distance=CosineSimilarity())
    if scope == "within":
        miner = WithinGroupMiner(miner, group_of_label(groups.labels, groups.groups))
    value = TripletMarginLoss(margin=0.3, distance=CosineSimilarity())(
        x, groups.labels, miner(x, groups.labels)
    )
    plain = AdaptiveTripletLoss(scope=scope)(x, groups).loss  # type: ignore[arg-type]
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(plain, x))


def test_docstring_examples() -> None:
    assert doctest.testmod(idiomloss.metric_learning).failed == 0
