"""Retrieval metrics on rankings. Ties are broken by hashes of the documents' ids, see :func:`tie_break`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from idiomloss.similarity import unit_vectors
from idiomtune.data.user.text_table import stable_hash

# Of some queries, a slice of all, with N documents: (size of the slice, N).
Similarity = Callable[[slice], Tensor]

# The first K documents of Q queries, best first: int (Q, K), positions; (Q, K), their similarities.
Ranking = tuple[Tensor, Tensor]

_LEAST_SHARE = 0.0005  # of ties that are told: what is shown as 0.0% is not
_MAX_SIMILARITIES = 16_000_000  # in memory: 64 MB in float32


def tie_break(ids: Iterable[str]) -> Tensor:
    """Int64 (N,): of documents with equal similarity, the one with the smaller number ranks first.

    Hashes of the ids: the same in every run, whatever the order of the documents, and unrelated to what is
    relevant.
    """
    return torch.from_numpy(np.fromiter(map(stable_hash, ids), np.int64))


def rank(similarity: Tensor, depth: int | None = None, ties: Tensor | None = None) -> Tensor:
    """Positions of each query's documents, best first.

    Args:
        similarity: (Q, N).
        depth: keep only this many.
        ties: (N,), from :func:`tie_break`; None = of equal similarities the smaller position ranks first.

    Returns:
        int (Q, min(depth, N)).
    """
    if ties is not None:
        order = ties.to(similarity.device).argsort(stable=True)
        return order[rank(similarity[:, order], depth)]
    if depth is None or depth >= similarity.shape[1]:
        return similarity.argsort(dim=1, descending=True, stable=True)
    last = similarity.topk(depth, dim=1).values[:, -1:]
    chosen = similarity >= last
    unclear = chosen.sum(1) != depth  # several documents share the last one's similarity (or are NaN)
    ranking = torch.empty(len(similarity), depth, dtype=torch.long, device=similarity.device)
    clear = similarity[~unclear]
    positions = chosen[~unclear].nonzero()[:, 1].view(-1, depth)
    order = clear.gather(1, positions).argsort(dim=1, descending=True, stable=True)
    ranking[~unclear] = positions.gather(1, order)
    ranking[unclear] = similarity[unclear].argsort(dim=1, descending=True, stable=True)[:, :depth]
    return ranking


def rank_in_blocks(similarity: Similarity, num_queries: int, depth: int, ties: Tensor) -> Ranking:
    """As :func:`rank`, for a block of queries at a time, so that memory does not grow with their number.

    Args:
        similarity: of some queries with all N documents.
        ties: (N,), from :func:`tie_break`.

    Returns:
        The first min(depth, N), on the CPU.
    """
    size, blocks = max(_MAX_SIMILARITIES // max(len(ties), 1), 1), []
    for block in (slice(start, start + size) for start in range(0, num_queries, size)):
        of_block = similarity(block)
        order = rank(of_block, depth, ties)
        blocks.append((order.cpu(), of_block.gather(1, order).cpu()))
    positions, values = (torch.cat(rows) for rows in zip(*blocks, strict=True))
    return positions, values


def nearest(
    queries: Tensor, documents: Tensor, depth: int, ties: Tensor, left_out: Sequence[Sequence[int]] = ()
) -> Ranking:
    """The documents with the greatest cosines: the first min(depth, N).

    Args:
        queries: (Q, D).
        documents: (N, D).
        ties: (N,), from :func:`tie_break`.
        left_out: of each query, the documents that come last, with a similarity of -inf, by position.
    """
    scale = documents.norm(dim=1)
    scale = torch.where(scale > 0, 1 / scale, 0.0)  # a zero vector has the cosine 0 with everything

    def cosines(block: slice) -> Tensor:
        products = (unit_vectors(queries[block]) @ documents.T).mul_(scale)  # documents are not held twice
        for of_query, positions in zip(products, left_out[block], strict=False):
            of_query[list(positions)] = -torch.inf
        return products

    return rank_in_blocks(cosines, len(queries), depth, ties)


def tie_note(key: str, hits: Tensor, similarities: Tensor) -> list[str]:
    """A sentence on relevant documents that have the very similarity of one that is not relevant, if any.

    Args:
        key: the scores that it is about.
        hits: bool (Q, K) by rank.
        similarities: (Q, K) by rank.
    """
    kind = functional.pad((similarities.diff(dim=1) != 0).cumsum(1), (1, 0))  # (Q, K), equal for equal ones
    num_misses = torch.zeros_like(kind).scatter_add(1, kind, (~hits).long())
    share = (hits & (num_misses.gather(1, kind) > 0)).sum() / hits.sum().clamp(min=1)
    tied = f"{key}: {share:.1%} of the relevant documents in the ranking tie with irrelevant ones"
    return [f"{tied}; hashes of the ids give their order, not the model"] if share >= _LEAST_SHARE else []


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
    """Share of one kind's relevant documents that rank within the first R of all.

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
        hits: bool (Q, K) by rank, K at least k or all documents.
        num_relevant: int (Q,).
        k: cut-off.

    Returns:
        (Q,), float64; 0 for a query without relevant documents.
    """
    return ndcg_of_gains(hits, torch.arange(k, device=hits.device) < num_relevant[:, None], k)


def ndcg_of_gains(gains: Tensor, ideal: Tensor, k: int) -> Tensor:
    """As :func:`ndcg`, with a gain for each document (linear, as in trec_eval).

    Args:
        gains: (Q, K) by rank, not negative, K at least k or all documents.
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
    """1 / rank of the first relevant document, 0 if none ranks in the first k: (Q,), float64."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device, dtype=torch.float64)
    return (hits / ranks)[:, :k].amax(1)
