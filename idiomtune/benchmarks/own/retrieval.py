"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from idiomtune.benchmarks import Corpus, Embeddings, Result
from idiomtune.benchmarks.own import RETRIEVAL_METRICS, Index, OwnRetrievalOptions
from idiomtune.benchmarks.own.collections import Collection, in_mode, read_collection, span_note
from idiomtune.benchmarks.own.ranking import add_rankings
from idiomtune.benchmarks.retrieval import SAMPLE, Search, approximate_ranking, tie_note
from idiomtune.errors import UserError
from idiomtune.io.files import expanded, is_plain_name
from idiomtune.requests import Request

_DEPTH = 100  # documents that are ranked
_STORE = "benchmark.own_retrieval.store"


def build(_settings: Any, options: OwnRetrievalOptions) -> OwnRetrievalBenchmark:
    """The benchmark on all named folders."""
    store = None if options.store is None else expanded(options.store, _STORE)
    collections = []
    for name, folder in options.paths.items():
        if store is not None and not is_plain_name(name):
            raise UserError(
                f"no folder there can be called {name!r}: name the data", option=_STORE, file=store
            )
        how, streamed = (options.judgements, options.instruction, options.missing), store is not None
        collection = read_collection(name, folder, *how, exclude_self=options.exclude_self, streamed=streamed)
        collections.append(collection)
    return OwnRetrievalBenchmark(collections, store=store, shard_size=options.shard_size, index=options.index)


class OwnRetrievalBenchmark:
    """Metrics of the first hundred documents by cosine; means over queries with a relevant document.

    The gain of nDCG is a judgement's grade, 0 without one, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Documents
    with equal cosines are ordered by hashes of their ids.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`idiomtune.benchmarks.own.collections.read_collection`.
        name: first part of the score keys.
        store: where documents' embeddings are kept, rather than in memory.
        shard_size: documents per file of the store.
        index: `hnsw` = an approximate index of the store finds the documents to rank.
    """

    without_gold: Sequence[str] = ()

    def __init__(
        self,
        collections: Sequence[Collection],
        *,
        name: str = "own_retrieval",
        store: Path | None = None,
        shard_size: int = 50_000,
        index: Index = "exact",
    ) -> None:
        self.name, self.collections, self._index = name, collections, index
        self.files = [path for collection in collections for path in collection.files]
        self._corpora = {
            (collection.name, mode): Corpus(
                f"{collection.name}, by {mode}",
                store / collection.name / mode,
                _STORE,
                partial(in_mode, collection.documents, mode),
                len(collection.documents),
                f"{mode} {collection.documents.digest}",
                shard_size,
            )
            for collection in collections
            if store is not None
            for mode in dict.fromkeys(map(collection.document_mode, collection.modes))
        }

    @property
    def corpora(self) -> list[Corpus]:
        """What is to be embedded into the store."""
        return list(self._corpora.values())

    @property
    def announced(self) -> list[Request]:
        """Documents that are not stored, and queries, by each mode."""
        requests: list[Request] = []
        for collection in self.collections:
            for mode in collection.modes:
                if not self._corpora and mode == collection.document_mode(mode):
                    requests += in_mode(collection.documents, mode)
                requests += in_mode((query.text for query in collection.queries), mode)
        return requests

    def score(self, embed: Embeddings) -> Result:
        """The scores of all collections and modes."""
        result = Result()
        for collection in self.collections:
            key = "/".join(filter(None, (self.name, collection.name)))
            queries = [query.text for query in collection.queries]
            for mode in collection.modes:
                asked_as = collection.document_mode(mode)
                corpus = self._corpora.get((collection.name, asked_as))
                stored = None if corpus is None else embed.stored(corpus)
                parts = [embed([*in_mode(collection.documents, asked_as)])] if stored is None else stored
                search = Search(
                    embed([*in_mode(queries, mode)]),
                    parts,
                    torch.from_numpy(collection.documents.numbers),
                    [query.left_out for query in collection.queries],
                )
                if self._index == "hnsw" and stored is not None and stored.width is None:
                    ranking, recalled = approximate_ranking(search, stored, _DEPTH)
                    result.notes.append(
                        f"{key}, by {mode}: the approximate index finds {100 * recalled:.1f}% of the exact "
                        f"first {ranking[0].shape[1]} documents (by {min(SAMPLE, len(queries))} queries)"
                    )
                else:
                    ranking = search.ranking(_DEPTH)
                place, ranked = (self.name, collection.name, mode), ranking[0].tolist()
                hits = add_rankings(
                    *(result, place, RETRIEVAL_METRICS, collection.queries, ranked),
                    collection.documents.shown,
                )
                result.notes.extend(tie_note(f"{key}, by {mode}", hits, ranking[1]))
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of {collection.num_left_out + len(queries)} queries "
                    "have no relevant document to find, and are left out"
                )
            result.notes.extend(span_note(queries, f"{key}/span"))
        return result
