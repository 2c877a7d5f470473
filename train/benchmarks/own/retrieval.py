"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.benchmarks import BenchmarkResult
from train.benchmarks.own import (
    NDCG_CUTOFFS,
    RECALL_CUTOFFS,
    RETRIEVAL_METRICS,
    Mode,
    OwnRetrievalOptions,
    own_key,
)
from train.benchmarks.own.collections import Collection, read_collection
from train.benchmarks.own.fields import span_note
from train.benchmarks.retrieval import (
    average_precision,
    ndcg_of_gains,
    rank_in_parts,
    recall,
    reciprocal_rank,
)
from train.requests import Request

_DEPTH = 100  # documents that are ranked
_TOP_SAVED = 10  # documents a query in the per-query results


def build(_settings: Any, options: OwnRetrievalOptions) -> OwnRetrievalBenchmark:
    """The benchmark on all named folders."""
    collections = [
        read_collection(name, folder, options.judgements, options.instruction)
        for name, folder in options.paths.items()
    ]
    return OwnRetrievalBenchmark(collections, exclude_self=options.exclude_self)


class OwnRetrievalBenchmark:
    """Metrics of the first hundred documents by cosine; means over queries with a relevant document.

    The gain of nDCG is a judgement's grade, 0 where there is none, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Of equal
    cosines, the document that comes first in the corpus ranks first.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`train.benchmarks.own.collections.read_collection`.
        exclude_self: a document with the query's id is not a result of the query (as in BEIR, where some
            queries are documents of the corpus).
    """

    name = "own_retrieval"
    without_gold: Sequence[str] = ()

    def __init__(self, collections: Sequence[Collection], *, exclude_self: bool = False) -> None:
        self.collections = list(collections)
        self.files: list[Path] = [path for collection in collections for path in collection.files]
        self.requests: list[Request] = []
        self._exclude_self = exclude_self
        self._place: dict[tuple[str, str, Mode], slice] = {}  # (collection, side, mode) → rows
        for collection in collections:
            has_spans = any(document.span for document in collection.documents)
            for mode in collection.modes:
                if mode == "span" and not has_spans:
                    self._place[collection.name, "documents", mode] = self._place[
                        collection.name, "documents", "sentence"
                    ]
                else:
                    documents = [document.request(mode) for document in collection.documents]
                    self._ask(collection, "documents", mode, documents)
                queries = [query.text.request(mode, "query") for query in collection.queries]
                self._ask(collection, "queries", mode, queries)

    def _ask(self, collection: Collection, side: str, mode: Mode, requests: Sequence[Request]) -> None:
        start = len(self.requests)
        self.requests.extend(requests)
        self._place[collection.name, side, mode] = slice(start, len(self.requests))

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        result = BenchmarkResult({})
        for collection in self.collections:
            for mode in collection.modes:
                documents, queries = (
                    embeddings[self._place[collection.name, side, mode]] for side in ("documents", "queries")
                )
                similarity = self._similarity(collection, queries, documents)
                ranking = rank_in_parts(similarity, len(queries), len(documents), _DEPTH)
                _score_mode(collection, mode, ranking, result)
            key = f"{self.name}/{collection.name}"
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of "
                    f"{collection.num_left_out + len(collection.queries)} queries have no relevant document, "
                    "and are left out"
                )
            result.notes.extend(span_note((query.text for query in collection.queries), f"{key}/span"))
        return result

    def _similarity(
        self, collection: Collection, queries: Tensor, documents: Tensor
    ) -> Callable[[slice], Tensor]:
        """Cosines of a part of the queries with all documents, whose embeddings are not held twice."""
        # 1 / length; 0 for a zero vector, which then has the cosine 0 with everything.
        scale = documents.norm(dim=1)
        scale = torch.where(scale > 0, 1 / scale, 0.0)
        itself: dict[int, int] = {}
        if self._exclude_self:
            position = {id_: n for n, id_ in enumerate(collection.document_ids)}
            itself = {n: position[q.id] for n, q in enumerate(collection.queries) if q.id in position}

        def similarity(chunk: slice) -> Tensor:
            found = (unit_vectors(queries[chunk]) @ documents.T).mul_(scale)
            for number in range(len(found)):
                if (document := itself.get(chunk.start + number)) is not None:
                    found[number, document] = -torch.inf
            return found

        return similarity


def _score_mode(collection: Collection, mode: Mode, ranking: Tensor, result: BenchmarkResult) -> None:
    """Args: ranking: int (Q, K), positions of documents, best first."""
    orders = ranking.tolist()
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
                ],
            }
        )
