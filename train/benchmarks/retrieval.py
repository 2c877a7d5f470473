"""Retrieval metrics on rankings. Ties are broken by corpus order."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

# Of some queries, a slice of all, with N documents: (size of the slice, N).
Similarity = Callable[[slice], Tensor]

_MAX_SIMILARITIES = 16_000_000  # in memory: 64 MB in float32


def rank(similarity: Tensor, depth: int | None = None) -> Tensor:
    """Corpus positions, best first, for each query.

    Args:
        similarity: (Q, N).
        depth: keep only the first so many.

    Returns:
        int (Q, min(depth, N)). Of equal similarities the document that comes first in the corpus ranks
        first (trec_eval would put the one with the greater id first).
    """
    if depth is None or depth >= similarity.shape[1]:
        return similarity.argsort(dim=1, descending=True, stable=True)
    last = similarity.topk(depth, dim=1).values[:, -1:]
    chosen = similarity >= last
    unclear = chosen.sum(1) != depth  # several documents share the last one's similarity (or are NaN)
    ranking = torch.empty(len(similarity), depth, dtype=torch.long, device=similarity.device)
    clear = similarity[~unclear]
    positions = chosen[~unclear].nonzero()[:, 1].view(-1, depth)  # in the corpus' order
    order = clear.gather(1, positions).argsort(dim=1, descending=True, stable=True)
    ranking[~unclear] = positions.gather(1, order)
    ranking[unclear] = similarity[unclear].argsort(dim=1, descending=True, stable=True)[:, :depth]
    return ranking


def rank_in_parts(parts: Iterable[tuple[int, Similarity]], num_queries: int, depth: int) -> Tensor:
    """As :func:`rank`, for a part of the documents and some queries at a time.

    Memory then grows with neither number, but for the result. What is in memory at once is one part.

    Args:
        parts: of the corpus, in its order: the number of their documents, and these documents' similarities.

    Returns:
        int (Q, min(depth, N)), on the CPU.
    """
    values, ranking = torch.empty(num_queries, 0), torch.empty(num_queries, 0, dtype=torch.long)
    first = 0  # the part's position in the corpus
    for num_documents, similarity in parts:
        chunk_size = max(_MAX_SIMILARITIES // max(num_documents, 1), 1)  # queries
        merged = [
            _merged(values[chunk], ranking[chunk], similarity(chunk), first, depth)
            for chunk in (slice(start, start + chunk_size) for start in range(0, num_queries, chunk_size))
        ]
        values, ranking = (torch.cat(rows) for rows in zip(*merged, strict=True))
        first += num_documents
    return ranking


def _merged(
    values: Tensor, ranking: Tensor, similarity: Tensor, first: int, depth: int
) -> tuple[Tensor, Tensor]:
    """The best of those found so far, (Q, K), and of the next documents, whose first has position `first`."""
    order = rank(similarity, depth)
    found = similarity.gather(1, order).cpu()
    order = order.cpu() + first
    if not first:
        return found, order
    # What was found before stands first, so that the earlier document wins where similarities are equal.
    values, ranking = torch.cat([values, found], 1), torch.cat([ranking, order], 1)
    best = rank(values, depth)
    return values.gather(1, best), ranking.gather(1, best)


def r_precision(hits: Tensor, num_relevant: Tensor) -> Tensor:
    """Share of relevant documents among the first R, R = the query's number of relevant documents.

    Args:
        hits: bool (Q, K) by rank, K at least the greatest R.
        num_relevant: int (Q,), R.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    return recall_at_r(hits, num_relevant, num_relevant.clamp(min=1))


def recall_at_r(kind_hits: Tensor, num_relevant: Tensor, num_kind: Tensor) -> Tensor:
    """Share of one kind's relevant documents that stand within the first R of all.

    Args:
        kind_hits: bool (Q, K) by rank, K at least the greatest R: relevant and of that kind.
        num_relevant: int (Q,), R: relevant documents of all kinds.
        num_kind: int (Q,), relevant documents of that kind.

    Returns:
        (Q,), float64; NaN for a query without relevant documents of that kind.
    """
    within = torch.arange(kind_hits.shape[1], device=kind_hits.device)[None] < num_relevant[:, None]
    return (kind_hits & within).sum(1).double() / num_kind


def ndcg(hits: Tensor, num_relevant: Tensor, k: int) -> Tensor:
    """Normalised discounted cumulative gain of the first k, gain 1 for a relevant document.

    DCG = sum over ranks i = 1..k of hit_i / log2(i + 1), divided by that of an ideal ranking.

    Args:
        hits: bool (Q, K) by rank, K at least k or the whole corpus.
        num_relevant: int (Q,).
        k: cut-off.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    k = min(k, hits.shape[1])
    discounts = 1.0 / torch.arange(2, k + 2, device=hits.device, dtype=torch.float64).log2()
    dcg = hits[:, :k].double() @ discounts
    ideal = torch.cat([discounts.new_zeros(1), discounts.cumsum(0)])
    return dcg / ideal[num_relevant.clamp(max=k)].clamp(min=discounts[0])


def ndcg_of_gains(gains: Tensor, ideal: Tensor, k: int) -> Tensor:
    """As :func:`ndcg`, with a gain of each document's own (linear, as trec_eval has it).

    Args:
        gains: (Q, K) by rank, 0 at least, K at least k or the whole corpus.
        ideal: (Q, J), all gains of a query, the greatest first, zeros after them.
        k: cut-off.

    Returns:
        (Q,), float64; 0 for a query without gains.
    """

    def dcg(values: Tensor) -> Tensor:
        first = values[:, :k].double()
        return first @ (1.0 / torch.arange(2, first.shape[1] + 2, dtype=torch.float64).log2()).to(first)

    best = dcg(ideal)
    return torch.where(best > 0, dcg(gains) / best.clamp(min=torch.finfo(torch.float64).tiny), 0.0)


def average_precision(hits: Tensor, num_relevant: Tensor) -> Tensor:
    """Mean over relevant documents of the precision at their rank; 0 for those beyond the first K.

    Args:
        hits: bool (Q, K) by rank.
        num_relevant: int (Q,), also of those beyond K.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device, dtype=torch.float64)
    precision = hits.cumsum(1) / ranks
    return (precision * hits).sum(1) / num_relevant.clamp(min=1)


def recall(hits: Tensor, num_relevant: Tensor, k: int) -> Tensor:
    """Share of relevant documents among the first k: (Q,), float64, from hits (Q, K) and their number."""
    return hits[:, :k].sum(1).double() / num_relevant.clamp(min=1)


def reciprocal_rank(hits: Tensor, k: int | None = None) -> Tensor:
    """1 / rank of the first relevant document, 0 if there is none in the first k: (Q,), float64."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device, dtype=torch.float64)
    return (hits / ranks)[:, :k].amax(1)
