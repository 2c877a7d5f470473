"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from train.benchmarks import Corpus, Embeddings, Result
from train.benchmarks.approximate import SAMPLE, approximate_ranking
from train.benchmarks.own import (
    NDCG_CUTOFFS,
    RECALL_CUTOFFS,
    Index,
    Mode,
    OwnRetrievalOptions,
    own_score,
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

    The gain of nDCG is a judgement's grade, 0 without one, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Documents
    with equal cosines are ordered by hashes of their ids.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`train.benchmarks.own.collections.read_collection`.
        name: first part of the score keys.
        exclude_self: a document with the query's id is not a result of the query (as in BEIR, where some
            queries are documents of the corpus); a query with nothing else to find is not scored.
        store: where documents' embeddings are kept, rather than in memory.
        shard_size: documents a file of the store.
        index: `hnsw` = an approximate index of the store finds the documents to rank.
    """

    without_gold: Sequence[str] = ()

    def __init__(
        self,
        collections: Sequence[Collection],
        *,
        name: str = "own_retrieval",
        exclude_self: bool = False,
        store: Path | None = None,
        shard_size: int = 50_000,
        index: Index = "exact",
    ) -> None:
        self.name = name
        self.collections = [_without_self(one) if exclude_self else one for one in collections]
        self.files = [path for collection in collections for path in collection.files]
        self._index = index
        self._ties = {collection.name: tie_break(collection.document_ids) for collection in collections}
        self._corpora = {
            (one.name, mode): _corpus(one.name, one.documents, mode, store, shard_size)
            for one in self.collections
            if isinstance(one.documents, StreamedDocuments) and store is not None
            for mode in dict.fromkeys(_document_mode(one, mode) for mode in one.modes)
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
                if (collection.name, "sentence") not in self._corpora and mode == _document_mode(
                    collection, mode
                ):
                    requests += _documents(collection, mode)
                requests += _queries(collection, mode)
        return requests

    def score(self, embed: Embeddings) -> Result:
        """The scores of all collections and modes."""
        result = Result()
        for collection in self.collections:
            key = "/".join(filter(None, (self.name, collection.name)))
            for mode in collection.modes:
                asked_as = _document_mode(collection, mode)
                corpus = self._corpora.get((collection.name, asked_as))
                stored = None if corpus is None else embed.stored(corpus)
                parts = [embed(_documents(collection, asked_as))] if stored is None else stored
                left_out = [query.left_out for query in collection.queries]
                queries = embed(_queries(collection, mode))
                search = Search(queries, parts, self._ties[collection.name], left_out)
                if self._index == "hnsw" and stored is not None and not stored.is_cut:
                    ranking, recalled = approximate_ranking(search, stored, _DEPTH)
                    result.notes.append(
                        f"{key}, by {mode}: the approximate index finds {100 * recalled:.1f}% of the exact "
                        f"first {ranking[0].shape[1]} documents (by {min(SAMPLE, len(queries))} queries)"
                    )
                else:
                    ranking = search.ranking(_DEPTH)
                self._score_mode(collection, mode, ranking, result)
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of "
                    f"{collection.num_left_out + len(collection.queries)} queries have no relevant document "
                    "to find, and are left out"
                )
            result.notes.extend(span_note((query.text for query in collection.queries), f"{key}/span"))
        return result

    def _score_mode(self, collection: Collection, mode: Mode, ranking: Ranking, result: Result) -> None:
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
        key = "/".join(filter(None, (self.name, collection.name)))
        result.notes.extend(tie_note(f"{key}, by {mode}", hits, ranking[1]))
        num_relevant = torch.tensor([len(query.relevance) for query in collection.queries])
        metrics = {
            **{f"ndcg@{k}": ndcg_of_gains(gains, ideal, k) for k in NDCG_CUTOFFS},
            "map@100": average_precision(hits, num_relevant),
            **{f"recall@{k}": recall(hits, num_relevant, k) for k in RECALL_CUTOFFS},
            "precision@1": hits[:, 0].double(),
            "mrr@10": reciprocal_rank(hits, 10),
        }
        result.scores.extend(
            own_score(self.name, collection.name, mode, metric, values.mean().item())
            for metric, values in metrics.items()
        )
        columns = {metric: values.tolist() for metric, values in metrics.items()}
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


def _document_mode(collection: Collection, mode: Mode) -> Mode:
    """Documents without any span are whole sentences in either mode."""
    return mode if have_spans(collection.documents) else "sentence"


def _documents(collection: Collection, mode: Mode) -> list[Request]:
    return [document.request(mode) for document in collection.documents]


def _queries(collection: Collection, mode: Mode) -> list[Request]:
    return [query.text.request(mode, "query") for query in collection.queries]


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
