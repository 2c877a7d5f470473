"""InfoNCE over one flat list of candidates: soft, hard and in-batch negatives, several positives.

The candidates of a batch are in one flat list, whichever anchor they were drawn for, and masks say which of
them are positives and negatives of which anchor. Nothing is padded, so each anchor may have any number.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss.similarity import cosine_similarity, full_precision

InBatch = Literal["none", "positives", "all"]
FalseNegatives = Literal["keep", "mask", "positive"]
Denominator = Literal["negatives", "own_positive", "all_positives"]
Positives = Literal["mean", "hardest"]

# Stands for "absent" inside a log-sum-exp. Its exponential is exactly 0 next to any real logit, and
# unlike -inf it leaves the gradient of a row that is masked completely at 0 instead of NaN.
_ABSENT = -1e30


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
        positive, negative, hard = (m.to(device) for m in (self.positive, self.negative, self.hard))
        return CandidateMasks(positive, negative, hard, self.num_false_negatives)


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
        ValueError: if only one side's labels or ids are given, a shape does not fit, or an option is unknown.
    """
    num = len(owner)
    for name, tensor, expected in (
        ("is_positive", is_positive, (num,)),
        ("anchor_labels", anchor_labels, (num_anchors, 2)),
        ("candidate_labels", candidate_labels, (num, 2)),
        ("anchor_ids", anchor_ids, (num_anchors,)),
        ("candidate_ids", candidate_ids, (num,)),
    ):
        if tensor is not None and tensor.shape != expected:
            raise ValueError(f"{name}: expected shape {expected}, got {tuple(tensor.shape)}")
    for name, of_anchors, of_candidates in (
        ("labels", anchor_labels, candidate_labels),
        ("ids", anchor_ids, candidate_ids),
    ):
        if (of_anchors is None) != (of_candidates is None):
            raise ValueError(f"give both anchor_{name} and candidate_{name}, or neither")
    if false_negatives not in ("keep", "mask", "positive"):
        raise ValueError(f"false_negatives: {false_negatives!r} is not one of keep, mask, positive")

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
        negative = negative & (anchor_ids[:, None] != candidate_ids)
    false = hard = torch.zeros_like(positive)
    if anchor_labels is not None and candidate_labels is not None:
        same_idiom, same_meaning = (anchor_labels[:, None] == candidate_labels).unbind(2)  # (B, M) each
        hard = same_idiom & ~same_meaning
        false = negative & same_idiom & same_meaning
    if false_negatives != "keep" and candidate_ids is not None:
        alike = (candidate_ids[:, None] == candidate_ids).float()  # (M, M)
        false = false | (negative & (positive.float() @ alike > 0))
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


class InfoNCELoss(nn.Module):
    """The mean over anchors of the loss of each anchor with its positives and negatives.

    With s = cosine similarity / temperature, P the anchor's positives and N its negatives,

        L = mean over p in P of  -log( e^{s_p} / (Z + sum over n in N of w_n e^{s_n}) )

    where Z is 0 (`denominator="negatives"`), e^{s_p} (`"own_positive"`: positives do not compete with
    each other), or the sum of e^{s_p'} over all p' in P (`"all_positives"`, the supervised contrastive
    form). w_n is `hard_weight` for pairs of one idiom in opposite meanings, else `soft_weight`.

    Args:
        temperature: divides the similarities.
        denominator: what the denominator has besides the negatives.
        hard_weight: weight of hard negatives in the denominator; 0 leaves them out.
        soft_weight: weight of all other negatives; 0 leaves them out.
        positives: `hardest` takes only the least similar positive, instead of the mean over P (of those
            whose weight is not 0; the weights have no other effect then).

    Raises:
        ValueError: if the temperature is not positive, a weight is negative, or an option unknown.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247, training objective (`temperature=1`,
        `denominator="negatives"`: as printed; `0.05`, `"own_positive"`: as its released code runs).
        van den Oord et al. 2018, arXiv 1807.03748, eq. 4. Khosla et al. 2020, arXiv 2004.11362,
        eq. 2 (`"all_positives"`).

    Example:
        >>> import torch
        >>> from idiomloss import InfoNCELoss, candidate_masks, flatten_tuples
        >>> anchors, far = torch.eye(4), torch.eye(4).roll(1, 0)[:, None]  # a negative for each anchor
        >>> candidates, owner, is_positive = flatten_tuples(anchors, far)
        >>> masks = candidate_masks(len(anchors), owner, is_positive, in_batch="positives")
        >>> loss = InfoNCELoss(temperature=0.05)
        >>> assert loss(anchors, candidates, masks) < 1e-6  # each anchor is its positive
        >>> assert loss(far[:, 0], candidates, masks) > 20  # … and here its negative: 1 / 0.05
    """

    def __init__(
        self,
        temperature: float = 0.05,
        denominator: Denominator = "own_positive",
        hard_weight: float = 1.0,
        soft_weight: float = 1.0,
        positives: Positives = "mean",
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if hard_weight < 0 or soft_weight < 0:
            raise ValueError(f"weights must not be negative, got {hard_weight} and {soft_weight}")
        for name, value, kind in (
            ("denominator", denominator, Denominator),
            ("positives", positives, Positives),
        ):
            if value not in get_args(kind):
                raise ValueError(f"{name}: {value!r} is not one of {', '.join(get_args(kind))}")
        self.temperature = temperature
        self.denominator: Denominator = denominator
        self.hard_weight, self.soft_weight = hard_weight, soft_weight
        self.positives: Positives = positives

    def terms(
        self, similarity: Tensor, masks: CandidateMasks, positive_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of each anchor, before averaging.

        Args:
            similarity: (B, M), cosine of each anchor with each candidate.
            masks: which pairs are positive, negative and hard, each (B, M).
            positive_weights: (B, M), not negative, weights of the pairs in the mean over P, normalised for
                each anchor; 0 takes a pair out of the mean, not out of Z.

        Returns:
            `terms` (B,) and `valid` bool (B,): an anchor without positives (or, for
            `denominator="negatives"`, without negatives) has no loss: its term is 0.
        """
        positive, negative = masks.positive, masks.negative
        logits = full_precision(similarity) / self.temperature  # (B, M)

        weighted = logits
        if (self.hard_weight, self.soft_weight) != (1.0, 1.0):
            weights = torch.where(masks.hard, self.hard_weight, self.soft_weight).to(logits.dtype)
            negative = negative & (weights > 0)
            weighted = logits + torch.where(negative, weights, 1.0).log()
        log_negatives = weighted.masked_fill(~negative, _ABSENT).logsumexp(1, keepdim=True)  # (B, 1)

        valid = positive.any(1)
        if self.denominator == "own_positive":
            terms = functional.softplus(log_negatives - logits)
        elif self.denominator == "all_positives":
            log_positives = logits.masked_fill(~positive, _ABSENT).logsumexp(1, keepdim=True)
            terms = torch.logaddexp(log_negatives, log_positives) - logits
        else:
            valid = valid & negative.any(1)
            terms = log_negatives - logits
        pairs = positive & valid[:, None]
        if positive_weights is not None:
            pairs = pairs & (positive_weights > 0)
        if self.positives == "hardest":
            # The first of the least similar, where several tie.
            least = logits.detach().masked_fill(~pairs, math.inf).argmin(1, keepdim=True)
            pairs = pairs & torch.zeros_like(pairs).scatter(1, least, True)
        pair_weights = pairs.to(logits.dtype)
        if positive_weights is not None:
            pair_weights = pair_weights * positive_weights.to(pair_weights)
        total = pair_weights.sum(1, keepdim=True).clamp(min=torch.finfo(pair_weights.dtype).tiny)  # (B, 1)
        return (torch.where(pairs, terms, 0.0) * (pair_weights / total)).sum(1), pairs.any(1)

    def forward(
        self,
        anchors: Tensor,
        candidates: Tensor,
        masks: CandidateMasks,
        positive_weights: Tensor | None = None,
        anchor_weights: Tensor | None = None,
    ) -> Tensor:
        """Mean loss over anchors.

        Args:
            anchors: (B, D), any floating type; computed in float32 at least.
            candidates: (M, D).
            masks: for these B anchors and M candidates, from :func:`~idiomloss.candidate_masks`.
            positive_weights: (B, M), see :meth:`terms`.
            anchor_weights: (B,), not negative, of the anchors in the mean; None = all the same.

        Returns:
            A scalar. Zero, with a graph, when no anchor has a loss.
        """
        terms, valid = self.terms(cosine_similarity(anchors, candidates), masks, positive_weights)
        if anchor_weights is None:
            return terms.sum() / valid.sum().clamp(min=1)
        weights = anchor_weights.to(terms) * valid
        return (weights * terms).sum() / weights.sum().clamp(min=torch.finfo(terms.dtype).tiny)

    def extra_repr(self) -> str:
        return (
            f"temperature={self.temperature}, denominator={self.denominator!r}, "
            f"hard_weight={self.hard_weight}, soft_weight={self.soft_weight}, positives={self.positives!r}"
        )
