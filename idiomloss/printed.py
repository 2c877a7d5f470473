"""AIMA's ranking losses as its paper prints them, where that differs from what `idiomloss.ranking` has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from idiomloss.ranking import mean_over_items, pairwise_hinge, top1_hinge
from idiomloss.similarity import full_precision


def pairwise_printed(scores: Tensor, ranks: Tensor, margin: float = 1.0) -> Tensor:
    """The pairwise hinge over all ordered pairs, with the sign outside the hinge.

        L = 1 / (N (N - 1)) * sum over (i, j) of  max(0, m - (s_i - s_j)) sign(r_j - r_i)

    with scores s, gold ranks r (0 = best), margin m and N candidates. A pair's two orders, with i the better
    one and d = s_i - s_j, sum to max(0, m - d) - max(0, m + d):

        d <= -m          m - d      as in :func:`~idiomloss.pairwise_hinge`
        -m <= d <= m     -2 d       there m - d
        d >= m           -m - d     there 0

    So L is half of the pairwise hinge of the scores minus half of that of the reversed order. It has no
    minimum: pairs in the right order are driven apart for ever, those far apart as hard as the wrong ones.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        margin: m, in units of the scores.

    Returns:
        (B,), one loss an item; negative for a good order.

    Raises:
        ValueError: if the margin is negative, or a row of `ranks` is no order.

    References:
        Rasouli et al. 2025, "AIMA at SemEval-2025 Task 1", appendix A. Its N is read as the number of
        ordered pairs.
    """
    return (pairwise_hinge(scores, ranks, margin) - pairwise_hinge(-scores, ranks, margin)) / 2


def top1_printed(scores: Tensor, ranks: Tensor, margin: float = 1.0, sum_weight: float = 0.2) -> Tensor:
    """The sum of the best candidate's hinges, with two terms that raise its score and lower all.

        L = sum over j with r_j > 0 of  max(0, m + s_j - s_best)  -  s_best  +  alpha * sum over j of  s_j

    with scores s, gold ranks r (0 = best) and margin m. The first term is N - 1 times
    :func:`~idiomloss.top1_hinge`. The others have no minimum: where the hinges are 0, s_best goes on rising
    above the mean, and unless alpha is 1 / N all scores drift together.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        margin: m, in units of the scores.
        sum_weight: alpha, of the sum of all scores.

    Returns:
        (B,), one loss an item; negative for a good order.

    Raises:
        ValueError: if the margin or the weight is negative, or a row of `ranks` is no order.

    References:
        Rasouli et al. 2025, "AIMA at SemEval-2025 Task 1", appendix A.
    """
    if sum_weight < 0:
        raise ValueError(f"sum_weight must not be negative, got {sum_weight}")
    hinges = top1_hinge(scores, ranks, margin) * (scores.shape[1] - 1)
    scores = full_precision(scores)
    best = torch.where(ranks == 0, scores, 0.0).sum(1)
    return hinges - best + sum_weight * scores.sum(1)


class PairwisePrintedLoss(nn.Module):
    """:func:`pairwise_printed`, averaged over items.

    Args:
        margin: see there.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, scores: Tensor, ranks: Tensor) -> Tensor:
        """A scalar from (B, N) and (B, N); zero, with a graph, where B is 0."""
        return mean_over_items(pairwise_printed(scores, ranks, self.margin))

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class Top1PrintedLoss(nn.Module):
    """:func:`top1_printed`, averaged over items.

    Args:
        margin, sum_weight: see there.
    """

    def __init__(self, margin: float = 1.0, sum_weight: float = 0.2) -> None:
        super().__init__()
        self.margin = margin
        self.sum_weight = sum_weight

    def forward(self, scores: Tensor, ranks: Tensor) -> Tensor:
        """A scalar from (B, N) and (B, N); zero, with a graph, where B is 0."""
        return mean_over_items(top1_printed(scores, ranks, self.margin, self.sum_weight))

    def extra_repr(self) -> str:
        return f"margin={self.margin}, sum_weight={self.sum_weight}"
