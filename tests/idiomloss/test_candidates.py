"""Masks against pair-by-pair rules."""

from typing import Any

import pytest
import torch

from idiomloss import candidate_masks, flatten_tuples


def random_batch(seed: int) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=g)

    return {
        "owner": draw(8, 40),
        "is_positive": draw(3, 40) == 0,
        "anchor_labels": torch.stack([draw(3, 8), draw(2, 8)], 1),
        "candidate_labels": torch.stack([draw(3, 40), draw(2, 40)], 1),
        "anchor_ids": draw(30, 8),
        "candidate_ids": draw(30, 40),
    }


@pytest.mark.parametrize("in_batch", ["none", "positives", "all"])
@pytest.mark.parametrize("false_negatives", ["keep", "mask", "positive"])
def test_masks_follow_the_rules_pair_by_pair(in_batch: str, false_negatives: str) -> None:
    batch = random_batch(0)
    own = (batch["is_positive"] & (batch["owner"] == 3)).nonzero()[0]
    batch["candidate_ids"][own] = batch["anchor_ids"][3]  # a positive that is its own anchor
    masks = candidate_masks(8, **batch, in_batch=in_batch, false_negatives=false_negatives)  # type: ignore[arg-type]
    num_false = 0
    for i in range(8):
        for j in range(40):
            is_owned = batch["owner"][j] == i
            drawn_positive = bool(batch["is_positive"][j])
            itself = batch["anchor_ids"][i] == batch["candidate_ids"][j]
            idiom = batch["anchor_labels"][i, 0] == batch["candidate_labels"][j, 0]
            meaning = batch["anchor_labels"][i, 1] == batch["candidate_labels"][j, 1]
            positive = is_owned and drawn_positive
            negative = (
                (is_owned and not drawn_positive)
                or (not is_owned and in_batch == "all")
                or (not is_owned and in_batch == "positives" and drawn_positive)
            )
            if itself:  # a positive only if it was drawn as such
                negative = False
            like_a_positive = any(
                batch["owner"][k] == i
                and batch["is_positive"][k]
                and batch["candidate_ids"][k] == batch["candidate_ids"][j]
                for k in range(40)
            )
            if negative and ((idiom and meaning) or (like_a_positive and false_negatives != "keep")):
                num_false += 1
                negative = false_negatives == "keep"
                positive = positive or false_negatives == "positive"
            assert masks.positive[i, j] == positive
            assert masks.negative[i, j] == negative
            assert masks.hard[i, j] == (idiom and not meaning)
    assert num_false > 0
    assert masks.num_false_negatives == num_false
    assert not (masks.positive & masks.negative).any()


def test_flatten_tuples_drops_padding_and_keeps_owners() -> None:
    positives = torch.arange(6.0).reshape(3, 2)
    negatives = torch.arange(100.0, 118.0).reshape(3, 3, 2)
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    candidates, owner, is_positive = flatten_tuples(positives, negatives, mask)
    assert owner.tolist() == [0, 1, 2, 0, 0, 2, 2, 2]
    assert is_positive.tolist() == [True] * 3 + [False] * 5
    assert candidates[:, 0].tolist() == [0, 2, 4, 100, 102, 112, 114, 116]


def test_flatten_tuples_with_several_positives() -> None:
    candidates, owner, is_positive = flatten_tuples(torch.randn(3, 2, 4))
    assert candidates.shape == (6, 4)
    assert owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert is_positive.all()


@pytest.mark.parametrize("drop", ["anchor_labels", "candidate_labels", "anchor_ids", "candidate_ids"])
def test_one_sided_labels_or_ids_are_refused(drop: str) -> None:
    batch = random_batch(1)
    del batch[drop]
    with pytest.raises(ValueError, match="both"):
        candidate_masks(8, **batch)


def test_wrong_shapes_and_options_are_refused() -> None:
    batch = random_batch(2)
    with pytest.raises(ValueError, match="labels: expected"):
        candidate_masks(8, **(batch | {"anchor_labels": batch["anchor_labels"][:5]}))
    with pytest.raises(ValueError, match="in_batch"):
        candidate_masks(8, **batch, in_batch="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="false_negatives"):
        candidate_masks(8, **batch, false_negatives="drop")  # type: ignore[arg-type]
