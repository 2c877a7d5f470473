"""Documents that an approximate index finds: hierarchical navigable small worlds, by usearch.

References:
    Malkov and Yashunin 2018, arXiv 1603.09320.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from idiomloss.similarity import unit_vectors
from train.benchmarks.retrieval import Ranking, rank
from train.benchmarks.search import Search
from train.errors import UserError
from train.io.progress import progress_bar
from train.io.vectors import VectorStore

_FILE = "hnsw.usearch"
_CANDIDATES = 2  # times as many documents as are ranked come from the index
_EXPANSION = 400  # documents that a search of the index looks at
_CHUNK_SIZE = 64  # queries whose candidates are in memory at a time
SAMPLE = 100  # queries that are also searched exactly


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
