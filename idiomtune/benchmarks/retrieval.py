"""Retrieval metrics on rankings. Ties are broken by hashes of the documents' ids, see :func:`tie_break`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from idiomloss.similarity import unit_vectors
from idiomtune.data.own.load import number_for
from idiomtune.errors import UserError
from idiomtune.io.terminal import progress_bar
from idiomtune.io.vectors import VectorStore

# Of some queries, a slice of all, with N documents: (size of the slice, N).
Similarity = Callable[[slice], Tensor]

# The first K documents of Q queries, best first: int (Q, K), positions; (Q, K), their similarities.
Ranking = tuple[Tensor, Tensor]

_MAX_SIMILARITIES = 16_000_000  # in memory: 64 MB in float32


def tie_break(ids: Iterable[str]) -> Tensor:
    """Int64 (N,): of documents with equal similarity, the one with the smaller number ranks first.

    Hashes of the ids: the same in every run, whatever the order of the documents, and unrelated to what is
    relevant.
    """
    return torch.from_numpy(np.fromiter(map(number_for, ids), np.int64))


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


def rank_in_parts(
    parts: Iterable[tuple[int, Similarity]], num_queries: int, depth: int, ties: Tensor
) -> Ranking:
    """As :func:`rank`, for a part of the documents and some queries at a time.

    Memory then grows with neither number, but for the result. What is in memory at once is one part.

    Args:
        parts: of the corpus, in its order: the number of their documents, and these documents' similarities.
        ties: (N,), from :func:`tie_break`.

    Returns:
        The first min(depth, N), on the CPU.
    """
    positions, values = torch.empty(num_queries, 0, dtype=torch.long), torch.empty(num_queries, 0)
    first = 0  # the part's position in the corpus
    for num_documents, similarity in parts:
        chunk_size = max(_MAX_SIMILARITIES // max(num_documents, 1), 1)  # queries
        merged = [
            _merged((positions[chunk], values[chunk]), similarity(chunk), first, depth, ties)
            for chunk in (slice(start, start + chunk_size) for start in range(0, num_queries, chunk_size))
        ]
        positions, values = (torch.cat(rows) for rows in zip(*merged, strict=True))
        first += num_documents
    return positions, values


def _merged(best: Ranking, similarity: Tensor, first: int, depth: int, ties: Tensor) -> Ranking:
    """The best of those found so far, and of the next documents, whose first has position `first`."""
    order = rank(similarity, depth, ties[first : first + similarity.shape[1]])
    positions = torch.cat([best[0], order.cpu() + first], 1)
    values = torch.cat([best[1], similarity.gather(1, order).cpu()], 1)
    order = ties[positions].argsort(dim=1)
    order = order.gather(1, rank(values.gather(1, order), depth))
    return positions.gather(1, order), values.gather(1, order)


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
    return [f"{tied}; hashes of the ids give their order, not the model"] if share else []


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
    """As :func:`ndcg`, with a gain of each document's own (linear, as trec_eval has it).

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


_FILE = "hnsw.usearch"
_CANDIDATES = 2  # times as many documents as are ranked come from the index
_EXPANSION = 400  # documents that a search of the index looks at
_CHUNK_SIZE = 64  # queries whose candidates are in memory at a time
SAMPLE = 100  # queries that are also searched exactly


class Search:
    """The nearest documents of queries, by cosine.

    Args:
        queries: (Q, D).
        documents: all of them in parts, in the corpus' order, (n, D) each.
        ties: (N,), from :func:`idiomtune.benchmarks.retrieval.tie_break`.
        left_out: of each query, the documents that it does not find, by position; None = none.
    """

    def __init__(
        self,
        queries: Tensor,
        documents: Iterable[Tensor],
        ties: Tensor,
        left_out: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.queries, self.documents, self.ties = queries, documents, ties
        self.left_out = left_out or [()] * len(queries)

    def ranking(self, depth: int) -> Ranking:
        """The first min(depth, N) documents; what is left out comes last, with a similarity of -inf."""
        return rank_in_parts(self._parts(), len(self.queries), depth, self.ties)

    def some(self, numbers: Tensor) -> Search:
        """The same for some of the queries."""
        left_out = [self.left_out[query] for query in numbers.tolist()]
        return Search(self.queries[numbers], self.documents, self.ties, left_out)

    def _parts(self) -> Iterator[tuple[int, Similarity]]:
        first = 0
        for part in self.documents:
            # 1 / length; 0 for a zero vector, which then has the cosine 0 with everything.
            scale = part.norm(dim=1)
            scale = torch.where(scale > 0, 1 / scale, 0.0)
            yield len(part), partial(self._cosines, part, scale, first)
            first += len(part)

    def _cosines(self, part: Tensor, scale: Tensor, first: int, chunk: slice) -> Tensor:
        """Of a chunk of the queries with the documents of a part, which are not held twice."""
        found = (unit_vectors(self.queries[chunk]) @ part.T).mul_(scale)
        for number, left_out in enumerate(self.left_out[chunk]):
            for document in left_out:
                if first <= document < first + len(part):
                    found[number, document - first] = -torch.inf
        return found


def approximate_ranking(search: Search, store: VectorStore, depth: int) -> tuple[Ranking, float]:
    """As :meth:`Search.ranking`, of the documents that the index finds, and what share of the best these are.

    The index is built at the first call, and kept in the store's folder. It holds documents in 8 bits a
    number; what it finds is ranked by the cosines of the store's vectors.

    Returns:
        The first min(depth, N); recall: the share of an exact ranking's documents, by :data:`SAMPLE` queries.

    Raises:
        UserError: if the index cannot be written or read.
    """
    index = _index(store)
    depth = min(depth, store.num_rows)
    num_queries = len(search.queries)
    chunks = torch.split(torch.arange(num_queries), _CHUNK_SIZE)
    ranked = [_ranked(index, search.some(numbers), store, depth) for numbers in chunks]
    positions, values = (torch.cat(rows) for rows in zip(*ranked, strict=True))
    sample = torch.linspace(0, num_queries - 1, min(SAMPLE, num_queries)).round().long()
    exact, _ = search.some(sample).ranking(depth)
    recall: float = (exact[:, :, None] == positions[sample][:, None, :]).any(2).double().mean().item()
    return (positions, values), recall


def _ranked(index: Any, search: Search, store: VectorStore, depth: int) -> Ranking:
    count = min(_CANDIDATES * depth + 1, store.num_rows)
    found = index.search(unit_vectors(search.queries).numpy(), count, threads=torch.get_num_threads())
    keys, counts = np.atleast_2d(found.keys), np.atleast_1d(getattr(found, "counts", len(found)))
    if (counts < count).any():  # of a graph with parts that are not joined
        return search.ranking(depth)
    positions = torch.from_numpy(keys.astype(np.int64))  # (Q, C)
    positions = positions.gather(1, search.ties[positions].argsort(1))  # ties broken as in an exact ranking
    documents = unit_vectors(store.rows(positions))  # (Q, C, D)
    cosines = (documents @ unit_vectors(search.queries)[:, :, None])[:, :, 0]
    for row, left_out in enumerate(search.left_out):
        for document in left_out:
            cosines[row, positions[row] == document] = -torch.inf
    order = rank(cosines, depth)
    return positions.gather(1, order), cosines.gather(1, order)


def _index(store: VectorStore) -> Any:
    """The store's index, mapped into memory; built if missing."""
    from usearch.index import Index

    path = store.folder / _FILE
    try:
        with store.locked():
            if not store.is_whole(_FILE):
                _build(store)
        index = Index.restore(path, view=True, expansion_search=_EXPANSION)
    except (OSError, RuntimeError, ValueError) as error:  # what usearch raises
        raise UserError(f"{path}: the index cannot be written or read, delete it: {error}") from None
    if index is None or len(index) != store.num_rows:
        raise UserError(f"{path}: is not the index of the vectors in its folder: delete it")
    return index


def _build(store: VectorStore) -> None:
    from usearch.index import Index

    index = Index(ndim=store.dimension, metric="cos", dtype="i8")
    first = 0
    with progress_bar("index", store.num_rows) as advance:
        for part in store:
            keys = np.arange(first, first + len(part))
            index.add(keys, unit_vectors(part).numpy(), threads=torch.get_num_threads())
            first += len(part)
            advance(len(part))
    store.save(_FILE, index.save)
