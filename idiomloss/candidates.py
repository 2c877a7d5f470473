"""Which candidates are positives and which are negatives of which anchor.

The candidates of a batch lie in one flat list, whichever anchor they were drawn for. Nothing is padded, so
each anchor may have any number of positives and negatives.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

InBatch = Literal["none", "positives", "all"]
FalseNegatives = Literal["keep", "mask", "positive"]


@dataclass(frozen=True)
class CandidateMasks:
    """Pairs of B anchors and M candidates.

    Attributes:
        positive: bool (B, M), the pairs that are pulled together.
        negative: bool (B, M), the pairs that are pushed apart; disjoint from `positive`.
        hard: bool (B, M), the pairs of one idiom in opposite meanings.
        num_false_negatives: how many in-batch negatives share idiom and meaning with their anchor, whether
            they were kept, masked or made positives.
    """

    positive: Tensor
    negative: Tensor
    hard: Tensor
    num_false_negatives: int

    def to(self, device: torch.device | str) -> "CandidateMasks":
        """The same masks on `device`."""
        return CandidateMasks(
            self.positive.to(device),
            self.negative.to(device),
            self.hard.to(device),
            self.num_false_negatives,
        )


def candidate_masks(
    num_anchors: int,
    owner: Tensor,
    is_positive: Tensor,
    *,
    anchor_labels: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    anchor_ids: Tensor | None = None,
    candidate_ids: Tensor | None = None,
    in_batch: InBatch = "positives",
    false_negatives: FalseNegatives = "mask",
) -> CandidateMasks:
    """Masks over (anchor, candidate) pairs for one batch.

    Args:
        num_anchors: B.
        owner: int (M,), the anchor for which a candidate was drawn (-1: for no particular one).
        is_positive: bool (M,), whether it was drawn as its owner's positive (else as a negative).
        anchor_labels: int (B, 2), columns (idiom, meaning).
        candidate_labels: int (M, 2), the same for candidates.
        anchor_ids: int (B,), identities; what is the same as an anchor is never its negative, and its
            positive only if it was drawn as such (SimCSE); what is the same as one of its positives is a
            false negative (unless those are kept).
        candidate_ids: int (M,), identities in the same numbering.
        in_batch: which candidates of *other* anchors count: `none`, their `positives`, or `all`.
        false_negatives: what becomes of in-batch candidates with the anchor's idiom and meaning:
            `keep` them as negatives, `mask` them out, or count them as `positive` too.

    Returns:
        The masks. Without labels no pair is known to be false or hard.

    Raises:
        ValueError: if only one side's labels or ids are given, or a shape does not fit.
    """
    num_candidates = owner.shape[0]
    if is_positive.shape != owner.shape:
        raise ValueError(f"owner {tuple(owner.shape)} and is_positive {tuple(is_positive.shape)} differ")
    for name, anchors, candidates, tail in (
        ("labels", anchor_labels, candidate_labels, (2,)),
        ("ids", anchor_ids, candidate_ids, ()),
    ):
        if (anchors is None) != (candidates is None):
            raise ValueError(f"give both anchor_{name} and candidate_{name}, or neither")
        if anchors is not None and candidates is not None:
            got = tuple(anchors.shape), tuple(candidates.shape)
            expected = (num_anchors, *tail), (num_candidates, *tail)
            if got != expected:
                raise ValueError(f"{name}: expected shapes {expected}, got {got}")

    is_owned = owner[None, :] == torch.arange(num_anchors, device=owner.device)[:, None]  # (B, M)
    positive = is_owned & is_positive
    negative = is_owned & ~is_positive
    if in_batch == "positives":
        negative = negative | (~is_owned & is_positive)
    elif in_batch == "all":
        negative = ~positive
    elif in_batch != "none":
        raise ValueError(f"in_batch: {in_batch!r} is not one of none, positives, all")

    if anchor_ids is not None and candidate_ids is not None:
        itself = anchor_ids[:, None] == candidate_ids[None, :]
        negative = negative & ~itself

    false = torch.zeros_like(positive)
    hard = torch.zeros_like(positive)
    if anchor_labels is not None and candidate_labels is not None:
        same_idiom = anchor_labels[:, None, 0] == candidate_labels[None, :, 0]
        same_meaning = anchor_labels[:, None, 1] == candidate_labels[None, :, 1]
        hard = same_idiom & ~same_meaning
        false = negative & same_idiom & same_meaning
    if false_negatives != "keep" and candidate_ids is not None:
        alike = (candidate_ids[:, None] == candidate_ids[None, :]).float()  # (M, M)
        false = false | (negative & (positive.float() @ alike > 0))
    if false_negatives not in ("keep", "mask", "positive"):
        raise ValueError(f"false_negatives: {false_negatives!r} is not one of keep, mask, positive")
    if false_negatives == "positive":
        positive = positive | false
    if false_negatives != "keep":
        negative = negative & ~false
    return CandidateMasks(positive, negative, hard, int(false.sum()))


def flatten_tuples(
    positives: Tensor, negatives: Tensor | None = None, negative_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates, owners and kinds of a batch that comes as (anchor, positives, negatives) tuples.

    Args:
        positives: (B, D), or (B, P, D) for several positives an anchor.
        negatives: (B, K, D), padded where an anchor has fewer than K.
        negative_mask: bool (B, K), False where `negatives` is padding.

    Returns:
        `candidates` (M, D) without the padding, `owner` int (M,) and `is_positive` bool (M,), as
        :func:`candidate_masks` and :class:`~idiomloss.InfoNCELoss` take them.
    """
    if positives.ndim == 2:
        positives = positives[:, None]
    batch, num_positives, _ = positives.shape
    anchors = torch.arange(batch, device=positives.device)
    parts, owners = [positives.flatten(0, 1)], [anchors.repeat_interleave(num_positives)]
    if negatives is not None:
        if negative_mask is None:
            negative_mask = negatives.new_ones(negatives.shape[:2], dtype=torch.bool)
        parts.append(negatives[negative_mask])
        owners.append(anchors[:, None].expand_as(negative_mask)[negative_mask])
    owner = torch.cat(owners)
    is_positive = torch.arange(len(owner), device=owner.device) < batch * num_positives
    return torch.cat(parts), owner, is_positive
