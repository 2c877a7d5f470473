"""The losses in pytorch-metric-learning's form, against the plain ones and a loop."""

from typing import Any

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from torch import Tensor

from idiomloss import AdaptiveTripletLoss, CandidateMasks, InfoNCELoss, candidate_masks, label_groups
from idiomloss.metric_learning import IdiomInfoNCELoss, WithinGroupMiner, group_of_label, meaning_labels
from tests.idiomloss.harness import assert_nothing_learnt, assert_same, randn

IDIOMS = torch.tensor([0, 0, 0, 0, 1, 1, 2])
MEANINGS = torch.tensor([0, 0, 1, 1, 1, 1, 0])  # the last one has no positive


def masks_of(idioms: Tensor, meanings: Tensor, *, ids: Tensor | None = None) -> CandidateMasks:
    """Every text against these, positives by label."""
    return candidate_masks(
        7,
        torch.full((len(idioms),), -1),
        torch.zeros(len(idioms), dtype=torch.bool),
        anchor_labels=torch.stack([IDIOMS, MEANINGS], 1),
        candidate_labels=torch.stack([idioms, meanings], 1),
        anchor_ids=ids,
        candidate_ids=ids,
        in_batch="all",
        false_negatives="positive",
    )


@pytest.mark.parametrize("hard_weight", [1.0, 3.0])
def test_infonce_is_that_of_every_text_with_all_others(hard_weight: float) -> None:
    x = randn(7, 6)
    masks = masks_of(IDIOMS, MEANINGS, ids=torch.arange(7))
    plain = InfoNCELoss(temperature=0.3, hard_weight=hard_weight)(x, x, masks)
    ours = IdiomInfoNCELoss(temperature=0.3, hard_weight=hard_weight)(x, meaning_labels(IDIOMS, MEANINGS))
    assert_same(ours, plain, x)


@pytest.mark.parametrize("idioms", [["ice", "ice", "beans"], torch.tensor([0, 0, 1])])
@pytest.mark.parametrize("meanings", [("b", "a", "b"), [False, True, False]])
def test_labels_are_made_of_names_and_of_numbers(idioms: Any, meanings: Any) -> None:
    assert meaning_labels(idioms, meanings).tolist() == [0, 1, 2]


@pytest.mark.parametrize("meanings", [["i", "l"], [0, 1, 2]])
def test_labels_need_one_of_two_meanings_each(meanings: Any) -> None:
    with pytest.raises(ValueError, match="meanings"):
        meaning_labels(["ice", "ice", "beans"], meanings)


def test_infonce_takes_a_miners_triplets() -> None:
    """Only the mined pairs stand in the sum: here one positive and one negative for two anchors."""
    x = randn(7, 6)
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
    x = randn(3, 6)
    assert_nothing_learnt(IdiomInfoNCELoss()(x, torch.tensor([0, 2, 4])), x)


def test_references_are_the_candidates() -> None:
    x, references = randn(7, 6), randn(5, 6, seed=1)
    idioms, meanings = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 1, 0])
    ours = IdiomInfoNCELoss(hard_weight=2.0)(
        x,
        meaning_labels(IDIOMS, MEANINGS),
        ref_emb=references,
        ref_labels=meaning_labels(idioms, meanings),
    )
    plain = InfoNCELoss(hard_weight=2.0)(x, references, masks_of(idioms, meanings))
    assert_same(ours, plain, x, references)


def test_infonce_refuses_a_distance() -> None:
    with pytest.raises(TypeError, match="cosine"):
        IdiomInfoNCELoss(distance=LpDistance())


@pytest.mark.parametrize("scope", ["all", "within"])
def test_the_librarys_triplet_loss_with_our_miner_is_ours(scope: str) -> None:
    groups = label_groups([(1, 2), (2, 1), (1, 0), (0, 1), (2, 2)])
    x = randn(len(groups.labels), 6)
    miner = TripletMarginMiner(margin=0.4, distance=CosineSimilarity())
    if scope == "within":
        miner = WithinGroupMiner(miner, group_of_label(groups.labels, groups.groups))
    value = TripletMarginLoss(margin=0.3, distance=CosineSimilarity())(
        x, groups.labels, miner(x, groups.labels)
    )
    plain = AdaptiveTripletLoss(scope=scope)(x, groups).loss  # type: ignore[arg-type]
    assert_same(value, plain, x)
