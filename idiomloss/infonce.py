"""InfoNCE over one flat list of candidates: soft, hard and in-batch negatives, several positives."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss.candidates import CandidateMasks
from idiomloss.similarity import cosine_similarity, full_precision

Denominator = Literal["negatives", "own_positive", "all_positives"]
Positives = Literal["mean", "hardest"]

# Stands for "not there" inside a log-sum-exp. Its exponential is exactly 0 beside any real logit, and
# unlike -inf it leaves the gradient of a row that is masked completely at 0 instead of NaN.
_ABSENT = -1e30


def infonce_terms(
    similarity: Tensor,
    masks: CandidateMasks,
    *,
    temperature: float = 0.05,
    denominator: Denominator = "own_positive",
    hard_weight: float = 1.0,
    soft_weight: float = 1.0,
    positives: Positives = "mean",
    positive_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss of each anchor, before averaging.

    With s = similarity / temperature, P the anchor's positives and N its negatives,

        L = mean over p in P of  -log( e^{s_p} / (Z + sum over n in N of w_n e^{s_n}) )

    where Z is 0 (`denominator="negatives"`), e^{s_p} (`"own_positive"`: positives do not compete with
    each other), or the sum of e^{s_p'} over all p' in P (`"all_positives"`, the supervised contrastive
    form). w_n is `hard_weight` for pairs of one idiom in opposite meanings, else `soft_weight`.

    Args:
        similarity: (B, M), cosine of each anchor with each candidate.
        masks: which pairs are positive, negative and hard, each (B, M).
        temperature: divides the similarities.
        denominator: what stands in the denominator beside the negatives.
        hard_weight: weight of hard negatives in the denominator; 0 leaves them out.
        soft_weight: weight of all other negatives; 0 leaves them out.
        positives: `hardest` takes only the least similar positive, instead of the mean over P (of those
            whose weight is not 0; the weights have no other effect then).
        positive_weights: (B, M), not negative, weights of the pairs in the mean over P, normalised for each
            anchor; 0 takes a pair out of the mean, not out of Z.

    Returns:
        `terms` (B,) and `valid` bool (B,): an anchor without positives (or, for
        `denominator="negatives"`, without negatives) has no loss: its term is 0.

    Raises:
        ValueError: if the temperature is not positive, a weight is negative, or `denominator` unknown.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247, training objective (`temperature=1`,
        `denominator="negatives"`: as printed; `0.05`, `"own_positive"`: as its released code runs).
        van den Oord et al. 2018, arXiv 1807.03748, eq. 4. Khosla et al. 2020, arXiv 2004.11362,
        eq. 2 (`"all_positives"`).
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    if hard_weight < 0 or soft_weight < 0:
        raise ValueError(f"weights must not be negative, got {hard_weight} and {soft_weight}")
    positive, negative = masks.positive, masks.negative
    logits = full_precision(similarity) / temperature  # (B, M)

    weighted = logits
    if (hard_weight, soft_weight) != (1.0, 1.0):
        weights = torch.where(masks.hard, hard_weight, soft_weight).to(logits.dtype)
        negative = negative & (weights > 0)
        weighted = logits + torch.where(negative, weights, 1.0).log()
    log_negatives = weighted.masked_fill(~negative, _ABSENT).logsumexp(1, keepdim=True)  # (B, 1)

    valid = positive.any(1)
    if denominator == "own_positive":
        terms = functional.softplus(log_negatives - logits)
    elif denominator == "all_positives":
        log_positives = logits.masked_fill(~positive, _ABSENT).logsumexp(1, keepdim=True)
        terms = torch.logaddexp(log_negatives, log_positives) - logits
    elif denominator == "negatives":
        valid = valid & negative.any(1)
        terms = log_negatives - logits
    else:
        raise ValueError(f"denominator: {denominator!r} is not one of negatives, own_positive, all_positives")
    pairs = positive & valid[:, None]
    if positive_weights is not None:
        pairs = pairs & (positive_weights > 0)
    if positives == "hardest":
        # The first of the least similar, where several tie.
        least = logits.detach().masked_fill(~pairs, math.inf).argmin(1, keepdim=True)
        pairs = pairs & torch.zeros_like(pairs).scatter(1, least, True)
    elif positives != "mean":
        raise ValueError(f"positives: {positives!r} is not one of mean, hardest")
    pair_weights = pairs.to(logits.dtype)
    if positive_weights is not None:
        pair_weights = pair_weights * positive_weights.to(pair_weights)
    total = pair_weights.sum(1, keepdim=True).clamp(min=torch.finfo(pair_weights.dtype).tiny)  # (B, 1)
    return (torch.where(pairs, terms, 0.0) * (pair_weights / total)).sum(1), pairs.any(1)


class InfoNCELoss(nn.Module):
    """:func:`infonce_terms` on embeddings, averaged over the anchors that have a loss.

    Args:
        temperature, denominator, hard_weight, soft_weight, positives: see :func:`infonce_terms`.

    Example:
        >>> import torch
        >>> from idiomloss import InfoNCELoss, candidate_masks, flatten_tuples
        >>> anchors, positives = torch.randn(4, 8), torch.randn(4, 8)
        >>> negatives = torch.randn(4, 5, 8)
        >>> candidates, owner, is_positive = flatten_tuples(positives, negatives)
        >>> masks = candidate_masks(len(anchors), owner, is_positive, in_batch="positives")
        >>> loss = InfoNCELoss(temperature=0.05)(anchors, candidates, masks)
        >>> loss.shape
        torch.Size([])
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
        self.temperature = temperature
        self.denominator: Denominator = denominator
        self.hard_weight = hard_weight
        self.soft_weight = soft_weight
        self.positives: Positives = positives

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
            positive_weights: (B, M), see :func:`infonce_terms`.
            anchor_weights: (B,), not negative, of the anchors in the mean; None = all the same.

        Returns:
            A scalar. Zero, with a graph, when no anchor has a loss.
        """
        terms, valid = infonce_terms(
            cosine_similarity(anchors, candidates),
            masks,
            temperature=self.temperature,
            denominator=self.denominator,
            hard_weight=self.hard_weight,
            soft_weight=self.soft_weight,
            positives=self.positives,
            positive_weights=positive_weights,
        )
        if anchor_weights is None:
            return terms.sum() / valid.sum().clamp(min=1)
        weights = anchor_weights.to(terms) * valid
        return (weights * terms).sum() / weights.sum().clamp(min=torch.finfo(terms.dtype).tiny)

    def extra_repr(self) -> str:
        return (
            f"temperature={self.temperature}, denominator={self.denominator!r}, "
            f"hard_weight={self.hard_weight}, soft_weight={self.soft_weight}, positives={self.positives!r}"
        )
