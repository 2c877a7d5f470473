"""Queries and documents by their embeddings: cosines, part by part of the corpus, or by an approximate index.

References:
    Malkov and Yashunin 2018, arXiv 1603.09320 (the index: hierarchical navigable small worlds, by usearch).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.benchmarks.retrieval import Ranking, Similarity, rank, rank_in_parts
from train.errors import UserError
from train.io.progress import progress_bar
from train.io.vectors import VectorStore

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
        ties: (N,), from :func:`train.benchmarks.retrieval.tie_break`.
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
