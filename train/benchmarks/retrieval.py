"""Binary retrieval metrics on a matrix of similarities. Ties are broken by corpus order."""

import torch
from torch import Tensor


def rank(similarity: Tensor) -> Tensor:
    """Corpus positions, best first, for each query.

    Args:
        similarity: (Q, N).

    Returns:
        int (Q, N). Of equal similarities the document that comes first in the corpus ranks first
        (trec_eval would put the one with the greater id first).
    """
    return similarity.argsort(dim=1, descending=True, stable=True)


def relevance_by_rank(ranking: Tensor, relevant: Tensor) -> Tensor:
    """Bool (Q, N): whether the document at each rank is relevant.

    Args:
        ranking: int (Q, N), from :func:`rank`.
        relevant: bool (Q, N) by corpus position.
    """
    return relevant.gather(1, ranking)


def r_precision(hits: Tensor) -> Tensor:
    """Share of relevant documents among the first R, R = the query's number of relevant documents.

    Args:
        hits: bool (Q, N) by rank.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    num_relevant = hits.sum(1)
    within = torch.arange(hits.shape[1], device=hits.device)[None] < num_relevant[:, None]
    return (hits & within).sum(1).double() / num_relevant.clamp(min=1)


def recall_at_r(hits: Tensor, of_kind: Tensor) -> Tensor:
    """Share of one kind's relevant documents that stand within the first R of all.

    Args:
        hits: bool (Q, N) by rank, over all relevant documents (their number is R).
        of_kind: bool (Q, N) by rank: relevant and of the kind in question.

    Returns:
        (Q,), float64; NaN for a query without relevant documents of that kind.
    """
    within = torch.arange(hits.shape[1], device=hits.device)[None] < hits.sum(1)[:, None]
    return (of_kind & within).sum(1).double() / of_kind.sum(1)


def ndcg(hits: Tensor, k: int) -> Tensor:
    """Normalised discounted cumulative gain of the first k, gain 1 for a relevant document.

    DCG = sum over ranks i = 1..k of hit_i / log2(i + 1), divided by that of an ideal ranking.

    Args:
        hits: bool (Q, N) by rank.
        k: cut-off.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    k = min(k, hits.shape[1])
    discounts = 1.0 / torch.arange(2, k + 2, device=hits.device, dtype=torch.float64).log2()
    dcg = hits[:, :k].double() @ discounts
    ideal = torch.cat([discounts.new_zeros(1), discounts.cumsum(0)])
    return dcg / ideal[hits.sum(1).clamp(max=k)].clamp(min=discounts[0])
