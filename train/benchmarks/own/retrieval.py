"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from train.benchmarks import BenchmarkResult, Corpus
from train.benchmarks.approximate import SAMPLE, approximate_ranking
from train.benchmarks.own import (
    NDCG_CUTOFFS,
    RECALL_CUTOFFS,
    RETRIEVAL_METRICS,
    Index,
    Mode,
    OwnRetrievalOptions,
    own_key,
)
from train.benchmarks.own.collections import Collection, read_collection
from train.benchmarks.own.fields import span_note
from train.benchmarks.own.streamed import StreamedDocuments, have_spans
from train.benchmarks.retrieval import (
    Ranking,
    average_precision,
    ndcg_of_gains,
    recall,
    reciprocal_rank,
    tie_break,
    tie_note,
)
from train.benchmarks.search import Search
from train.errors import UserError
from train.io.paths import expanded, is_plain_name
from train.io.vectors import VectorStore
from train.requests import Request

_DEPTH = 100  # documents that are ranked
_STORE = "benchmark.own_retrieval.store"
_TOP_SAVED = 10  # documents a query in the per-query results


def build(_settings: Any, options: OwnRetrievalOptions) -> OwnRetrievalBenchmark:
    """The benchmark on all named folders."""
    store = None if options.store is None else expanded(options.store, _STORE)
    collections = []
    for name, folder in options.paths.items():
        if store is not None and not is_plain_name(name):
            raise UserError(f"{_STORE}={store}: no folder there can be called {name!r}: give the data a name")
        streamed = store is not None
        collections.append(
            read_collection(name, folder, options.judgements, options.instruction, streamed=streamed)
        )
    return OwnRetrievalBenchmark(
        collections,
        exclude_self=options.exclude_self,
        store=store,
        shard_size=options.shard_size,
        index=options.index,
    )


class OwnRetrievalBenchmark:
    """Metrics of the first hundred documents by cosine; means over queries with a relevant document.

    The gain of nDCG is a judgement's grade, 0 where there is none, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Documents
    with equal cosines are ordered by hashes of their ids.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`train.benchmarks.own.collections.read_collection`.
        exclude_self: a document with the query's id is not a result of the query (as in BEIR, where some
            queries are documents of the corpus); a query with nothing else to find is not scored.
        store: where documents' embeddings are kept, rather than in memory.
        shard_size: documents a file of the store.
        index: `hnsw` = an approximate index of the store finds the documents to rank.

    Attributes:
        corpora: what is to be embedded into the store.
    """

    name = "own_retrieval"
    without_gold: Sequence[str] = ()

    def __init__(
        self,
        collections: Sequence[Collection],
        *,
        exclude_self: bool = False,
        store: Path | None = None,
        shard_size: int = 50_000,
        index: Index = "exact",
    ) -> None:
        self.collections = [_without_self(one) if exclude_self else one for one in collections]
        self.files: list[Path] = [path for collection in collections for path in collection.files]
        self.requests: list[Request] = []
        self.corpora: list[Corpus] = []
        self._index = index
        self._ties = {collection.name: tie_break(collection.document_ids) for collection in collections}
        # (collection, side, mode) → rows, or the number of a corpus
        self._place: dict[tuple[str, str, Mode], slice | int] = {}
        for collection in self.collections:
            has_spans = have_spans(collection.documents)
            for mode in collection.modes:
                if mode == "span" and not has_spans:
                    self._place[collection.name, "documents", mode] = self._place[
                        collection.name, "documents", "sentence"
                    ]
                elif isinstance(collection.documents, StreamedDocuments) and store is not None:
                    self._place[collection.name, "documents", mode] = len(self.corpora)
                    self.corpora.append(
                        _corpus(collection.name, collection.documents, mode, store, shard_size)
                    )
                else:
                    documents = [document.request(mode) for document in collection.documents]
                    self._ask(collection, "documents", mode, documents)
                queries = [query.text.request(mode, "query") for query in collection.queries]
                self._ask(collection, "queries", mode, queries)

    def _ask(self, collection: Collection, side: str, mode: Mode, requests: Sequence[Request]) -> None:
        start = len(self.requests)
        self.requests.extend(requests)
        self._place[collection.name, side, mode] = slice(start, len(self.requests))

    def score(self, embeddings: Tensor, stores: Sequence[VectorStore] = ()) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`, and the stores of `corpora`."""
        result = BenchmarkResult({})
        for collection in self.collections:
            key = f"{self.name}/{collection.name}"
            for mode in collection.modes:
                queries = embeddings[self._place[collection.name, "queries", mode]]
                place = self._place[collection.name, "documents", mode]
                documents = [embeddings[place]] if isinstance(place, slice) else stores[place]
                left_out = [query.left_out for query in collection.queries]
                search = Search(queries, documents, self._ties[collection.name], left_out)
                if self._index == "hnsw" and isinstance(documents, VectorStore) and not documents.is_cut:
                    ranking, found = approximate_ranking(search, documents, _DEPTH)
                    result.notes.append(
                        f"{key}, by {mode}: the approximate index finds {100 * found:.1f}% of the exact "
                        f"first {ranking[0].shape[1]} documents (by {min(SAMPLE, len(queries))} queries)"
                    )
                else:
                    ranking = search.ranking(_DEPTH)
                _score_mode(collection, mode, ranking, result)
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of "
                    f"{collection.num_left_out + len(collection.queries)} queries have no relevant document "
                    "to find, and are left out"
                )
            result.notes.extend(span_note((query.text for query in collection.queries), f"{key}/span"))
        return result


def _without_self(collection: Collection) -> Collection:
    """Each query without the document of its id; without those that have nothing else to find.

    Raises:
        UserError: if no query is left.
    """
    ids = {query.id for query in collection.queries}
    own = {id_: position for position, id_ in enumerate(collection.document_ids) if id_ in ids}
    queries = [
        replace(query, relevance=others, left_out=[own[query.id]] if query.id in own else [])
        for query in collection.queries
        if (others := {n: grade for n, grade in query.relevance.items() if n != own.get(query.id)})
    ]
    if not queries:
        raise UserError(
            "benchmark.own_retrieval.exclude_self=true: no query has a relevant document other than itself "
            f"in {collection.files[-1]}"
        )
    num_left_out = collection.num_left_out + len(collection.queries) - len(queries)
    return replace(collection, queries=queries, num_left_out=num_left_out)


def _corpus(name: str, documents: StreamedDocuments, mode: Mode, store: Path, shard_size: int) -> Corpus:
    return Corpus(
        f"{name}, by {mode}",
        store / name / mode,
        _STORE,
        lambda: (document.request(mode) for document in documents),
        len(documents),
        f"{mode} {documents.digest}",
        shard_size,
    )


def _score_mode(collection: Collection, mode: Mode, ranking: Ranking, result: BenchmarkResult) -> None:
    orders = ranking[0].tolist()
    graded = zip(collection.queries, orders, strict=True)
    gains = torch.tensor(
        [[query.relevance.get(document, 0.0) for document in order] for query, order in graded],
        dtype=torch.float64,
    )
    ideal = torch.zeros(len(orders), max(NDCG_CUTOFFS), dtype=torch.float64)
    for number, query in enumerate(collection.queries):
        best = sorted(query.relevance.values(), reverse=True)[: ideal.shape[1]]
        ideal[number, : len(best)] = torch.tensor(best, dtype=torch.float64)
    hits = gains > 0
    result.notes.extend(tie_note(f"own_retrieval/{collection.name}, by {mode}", hits, ranking[1]))
    num_relevant = torch.tensor([len(query.relevance) for query in collection.queries])
    metrics = {
        **{f"ndcg@{k}": ndcg_of_gains(gains, ideal, k) for k in NDCG_CUTOFFS},
        "map@100": average_precision(hits, num_relevant),
        **{f"recall@{k}": recall(hits, num_relevant, k) for k in RECALL_CUTOFFS},
        "precision@1": hits[:, 0].double(),
        "mrr@10": reciprocal_rank(hits, 10),
    }
    for metric in RETRIEVAL_METRICS:
        key = own_key("own_retrieval", collection.name, mode, metric)
        result.scores[key] = metrics[metric].mean().item()
    columns = {metric: metrics[metric].tolist() for metric in RETRIEVAL_METRICS}
    for number, (query, order) in enumerate(zip(collection.queries, orders, strict=True)):
        result.per_query.append(
            {
                "name": collection.name,
                "mode": mode,
                "id": query.id,
                "group": query.group,
                "query": query.text.text,
                **{metric: values[number] for metric, values in columns.items()},
                "top": [
                    {"id": collection.document_ids[n], "grade": query.relevance.get(n, 0.0)}
                    for n in order[:_TOP_SAVED]
                    if n not in query.left_out
                ],
            }
        )
