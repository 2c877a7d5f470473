"""Losses on the scores of a few candidates with a known order: pairwise, listwise, the best one only.

Also two of them as the AIMA paper prints them (`*_printed`), where that differs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss.similarity import full_precision


def pairwise_hinge(scores: Tensor, ranks: Tensor, margin: float = 1.0) -> Tensor:
    """Every candidate should score higher than each lower-ranked one, by a margin.

        L = mean over (i, j) with r_i < r_j of  max(0, m - (s_i - s_j))

    with scores s, gold ranks r (0 = best) and margin m, in units of the scores. The mean over all (i, j), i
    != j, of max(0, m - sign(r_j - r_i) (s_i - s_j)) is the same, since it has each pair twice with the same
    value. With the sign outside the hinge it is another loss: :func:`~idiomloss.pairwise_printed`.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        margin: m.

    Returns:
        (B,), one loss an item.

    Raises:
        ValueError: if the margin is negative, or a row of `ranks` is not an order.
    """
    scores = _check_lists(scores, ranks, margin=margin)
    difference = scores[:, :, None] - scores[:, None, :]  # (B, N, N)
    above = (ranks[:, :, None] < ranks[:, None, :]).to(scores.dtype)
    return ((margin - difference).clamp(min=0) * above).sum((1, 2)) / above.sum((1, 2))


def listwise_softmax(scores: Tensor, ranks: Tensor, gold_temperature: float = 1.0) -> Tensor:
    """Cross-entropy of the scores' softmax with a gold distribution that falls with the rank.

        L = - sum over i of  P_i log softmax(s)_i,   P = softmax((N - 1 - r) / t)

    with scores s, gold ranks r (0 = best) and temperature t. Its smallest value is the entropy of P, not 0.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        gold_temperature: t; the smaller, the more of P is on the best candidate.

    Returns:
        (B,), one loss an item.

    Raises:
        ValueError: if the temperature is not positive, or a row of `ranks` is not an order.

    References:
        Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach", the top-one
        probabilities of ListNet.
    """
    if gold_temperature <= 0:
        raise ValueError(f"gold_temperature must be positive, got {gold_temperature}")
    scores = _check_lists(scores, ranks)
    gains = (ranks.shape[1] - 1 - ranks).to(scores.dtype)
    gold = functional.softmax(gains / gold_temperature, dim=1)
    return -(gold * functional.log_softmax(scores, dim=1)).sum(1)


def top1_hinge(scores: Tensor, ranks: Tensor, margin: float = 1.0, *, bounded: bool = True) -> Tensor:
    """The best candidate should score higher than every other one, by a margin; the others' order is free.

        L = mean over j with r_j > 0 of  max(0, m - (s_best - s_j))

    with scores s, gold ranks r (0 = best) and margin m, in units of the scores. The hinge bounds each term
    from below. Without it (`bounded=False`) the loss has no minimum: pushing one candidate ever further away
    makes up for the place of any other.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        margin: m.
        bounded: with the hinge; else each term is m - (s_best - s_j).

    Returns:
        (B,), one loss an item.

    Raises:
        ValueError: if the margin is negative, or a row of `ranks` is not an order.
    """
    scores = _check_lists(scores, ranks, margin=margin)
    best = scores.gather(1, (ranks == 0).int().argmax(1, keepdim=True))  # (B, 1)
    others = (ranks > 0).to(scores.dtype)
    terms = margin - (best - scores)
    return ((terms.clamp(min=0) if bounded else terms) * others).sum(1) / others.sum(1)


def pairwise_printed(scores: Tensor, ranks: Tensor, margin: float = 1.0) -> Tensor:
    """The pairwise hinge over all ordered pairs, with the sign outside the hinge.

        L = 1 / (N (N - 1)) * sum over (i, j) of  max(0, m - (s_i - s_j)) sign(r_j - r_i)

    with scores s, gold ranks r (0 = best), margin m and N candidates. A pair's two orders, with i the better
    one and d = s_i - s_j, sum to max(0, m - d) - max(0, m + d):

        d <= -m          m - d      as in :func:`~idiomloss.pairwise_hinge`
        -m <= d <= m     -2 d       there m - d
        d >= m           -m - d     there 0

    So L is half of the pairwise hinge of the scores minus half of that of the reversed order. It has no
    minimum: correctly ordered pairs keep being pushed apart without limit, as hard as the wrong ones.

    Args:
        scores: (B, N), any floating type; computed in float32 at least.
        ranks: int (B, N), in each row an order of 0 … N - 1.
        margin: m, in units of the scores.

    Returns:
        (B,), one loss an item; negative for a good order.

    Raises:
        ValueError: if the margin is negative, or a row of `ranks` is not an order.

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
        ValueError: if the margin or the weight is negative, or a row of `ranks` is not an order.

    References:
        Rasouli et al. 2025, "AIMA at SemEval-2025 Task 1", appendix A.
    """
    if sum_weight < 0:
        raise ValueError(f"sum_weight must not be negative, got {sum_weight}")
    hinges = top1_hinge(scores, ranks, margin) * (scores.shape[1] - 1)
    scores = full_precision(scores)
    best = torch.where(ranks == 0, scores, 0.0).sum(1)
    return hinges - best + sum_weight * scores.sum(1)


class _RankingLoss(nn.Module):
    """A function of scores and ranks, averaged over items; its options are attributes."""

    def __init__(self, terms: Callable[..., Tensor], **options: float) -> None:
        super().__init__()
        self._terms, self._names = terms, list(options)
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, scores: Tensor, ranks: Tensor) -> Tensor:
        """A scalar from (B, N) and (B, N); zero, with a graph, if B is 0."""
        terms = self._terms(scores, ranks, **{name: getattr(self, name) for name in self._names})
        return terms.sum() / max(len(terms), 1)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._names)


class PairwiseHingeLoss(_RankingLoss):
    """:func:`pairwise_hinge`, averaged over items.

    Args:
        margin: see there.

    Example:
        >>> import torch
        >>> from idiomloss import PairwiseHingeLoss
        >>> ranks = torch.tensor([[0, 1, 2, 3, 4]])  # the best first
        >>> good, bad = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0.0, 1, 2, 3, 4]])
        >>> assert PairwiseHingeLoss()(good, ranks) < PairwiseHingeLoss()(bad, ranks)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(pairwise_hinge, margin=margin)


class ListwiseSoftmaxLoss(_RankingLoss):
    """:func:`listwise_softmax`, averaged over items.

    Args:
        gold_temperature: see there.

    Example:
        >>> import torch
        >>> from idiomloss import ListwiseSoftmaxLoss
        >>> ranks = torch.tensor([[0, 1, 2, 3, 4]])  # the best first
        >>> good, bad = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0.0, 1, 2, 3, 4]])
        >>> assert ListwiseSoftmaxLoss()(good, ranks) < ListwiseSoftmaxLoss()(bad, ranks)
    """

    def __init__(self, gold_temperature: float = 1.0) -> None:
        super().__init__(listwise_softmax, gold_temperature=gold_temperature)


class Top1HingeLoss(_RankingLoss):
    """:func:`top1_hinge`, averaged over items.

    Args:
        margin, bounded: see there.

    Example:
        >>> import torch
        >>> from idiomloss import Top1HingeLoss
        >>> ranks = torch.tensor([[0, 1, 2, 3, 4]])  # the best first
        >>> good, bad = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0.0, 1, 2, 3, 4]])
        >>> assert Top1HingeLoss()(good, ranks) < Top1HingeLoss()(bad, ranks)
    """

    def __init__(self, margin: float = 1.0, *, bounded: bool = True) -> None:
        super().__init__(top1_hinge, margin=margin, bounded=bounded)


class PairwisePrintedLoss(_RankingLoss):
    """:func:`pairwise_printed`, averaged over items.

    Args:
        margin: see there.

    Example:
        >>> import torch
        >>> from idiomloss import PairwisePrintedLoss
        >>> ranks = torch.tensor([[0, 1, 2, 3, 4]])  # the best first
        >>> good, bad = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0.0, 1, 2, 3, 4]])
        >>> assert PairwisePrintedLoss()(good, ranks) < PairwisePrintedLoss()(bad, ranks)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(pairwise_printed, margin=margin)


class Top1PrintedLoss(_RankingLoss):
    """:func:`top1_printed`, averaged over items.

    Args:
        margin, sum_weight: see there.

    Example:
        >>> import torch
        >>> from idiomloss import Top1PrintedLoss
        >>> ranks = torch.tensor([[0, 1, 2, 3, 4]])  # the best first
        >>> good, bad = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0.0, 1, 2, 3, 4]])
        >>> assert Top1PrintedLoss()(good, ranks) < Top1PrintedLoss()(bad, ranks)
    """

    def __init__(self, margin: float = 1.0, sum_weight: float = 0.2) -> None:
        super().__init__(top1_printed, margin=margin, sum_weight=sum_weight)


def _check_lists(scores: Tensor, ranks: Tensor, margin: float = 0.0) -> Tensor:
    """The scores in full precision."""
    if margin < 0:
        raise ValueError(f"margin must not be negative, got {margin}")
    if scores.ndim != 2 or scores.shape != ranks.shape or scores.shape[1] < 2:
        shapes = f"{tuple(scores.shape)} and {tuple(ranks.shape)}"
        raise ValueError(f"expected scores and ranks (B, N) with N of at least 2, got {shapes}")
    order = torch.arange(ranks.shape[1], device=ranks.device)
    if not (ranks.sort(1).values == order).all():
        raise ValueError(f"ranks: each row must hold 0 to {ranks.shape[1] - 1} once, got {ranks.tolist()}")
    return full_precision(scores)
