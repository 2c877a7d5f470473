"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from idiomtune.benchmarks import Benchmark, Embed, Result
from idiomtune.benchmarks.retrieval import (
    average_precision,
    ndcg_of_gains,
    nearest,
    recall,
    reciprocal_rank,
    tie_note,
)
from idiomtune.benchmarks.user import KEY_MODES, RETRIEVAL_METRICS, Mode, user_score
from idiomtune.benchmarks.user.collections import Collection, in_mode, span_note
from idiomtune.requests import EmbeddingRequest

_DEPTH = 100  # documents that are ranked
_TOP_SAVED = 10  # documents per query in the per-query results


class UserRetrievalBenchmark(Benchmark):
    """Metrics of the first hundred documents by cosine; means over queries with a relevant document.

    The gain of nDCG is a judgement's grade, 0 without one, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Documents
    with equal cosines are ordered by hashes of their ids.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`idiomtune.benchmarks.user.collections.read_collection`.
        name: first part of the score keys.
    """

    def __init__(self, collections: Sequence[Collection], *, name: str = "own_retrieval") -> None:
        self.name, self.collections = name, collections
        self.files = [path for collection in collections for path in collection.files]

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """Documents and queries, by each mode."""
        requests: list[EmbeddingRequest] = []
        for collection in self.collections:
            has_spans = any(document.span for document in collection.documents)
            for mode in collection.modes:
                if mode == "sentence" or has_spans:
                    requests += in_mode(collection.documents, mode)
                requests += in_mode((query.text for query in collection.queries), mode)
        return requests

    def score(self, embed: Embed) -> Result:
        """The scores of all collections and modes."""
        result = Result()
        for collection in self.collections:
            key = "/".join(filter(None, (self.name, collection.name)))
            queries = [query.text for query in collection.queries]
            for mode in collection.modes:
                documents = embed([*in_mode(collection.documents, mode)])
                left_out = [query.left_out for query in collection.queries]
                positions, cosines = nearest(
                    embed([*in_mode(queries, mode)]), documents, _DEPTH, collection.ties, left_out
                )
                hits = self._add_rankings(collection, mode, positions.tolist(), result)
                result.notes.extend(tie_note(f"{key}, by {mode}", hits, cosines))
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of {collection.num_left_out + len(queries)} queries "
                    "have no relevant document to find, and are left out"
                )
            result.notes.extend(span_note(queries, f"{key}/span"))
        return result

    def _add_rankings(
        self, collection: Collection, mode: Mode, ranked: Sequence[Sequence[int]], result: Result
    ) -> Tensor:
        """Add metrics, which are means over queries, and a record for each query.

        A record's `rank` is that of its first relevant document; one more than are ranked if there is none.

        Args:
            ranked: positions of each query's documents, the best first; without a grade one is irrelevant.

        Returns:
            bool (Q, K), whether a document is relevant, by rank.
        """
        queries = collection.queries
        gains = _pad([[q.grades.get(n, 0.0) for n in row] for q, row in zip(queries, ranked, strict=True)])
        ideal = _pad([sorted(query.grades.values(), reverse=True) for query in queries])
        hits, num_relevant = gains > 0, (ideal > 0).sum(1)
        first = torch.where(hits.any(1), hits.int().argmax(1), hits.shape[1]) + 1

        def metric(name: str) -> list[float]:
            kind, _, cutoff = name.partition("@")
            k = int(cutoff)
            values: list[float] = {
                "ndcg": lambda: ndcg_of_gains(gains, ideal, k),
                "map": lambda: average_precision(hits[:, :k], num_relevant),
                "recall": lambda: recall(hits, num_relevant, k),
                "precision": lambda: hits[:, :k].double().mean(1),
                "mrr": lambda: reciprocal_rank(hits, k),
            }[kind]().tolist()
            return values

        metrics = {name: metric(name) for name in RETRIEVAL_METRICS}
        for name, values in metrics.items():
            mean = sum(values) / len(values)
            result.scores.append(user_score(self.name, collection.name, mode, name, mean))
        about = {"split": collection.name, "mode": KEY_MODES[mode]}
        for number, (query, of_query) in enumerate(zip(queries, ranked, strict=True)):
            own = {name: values[number] for name, values in metrics.items()} | {"rank": int(first[number])}
            top = [
                {**collection.shown(position), "grade": query.grades.get(position, 0.0)}
                for position in of_query[:_TOP_SAVED]
                if position not in query.left_out
            ]
            record = {**about, "id": query.id, "group": query.group, "query": query.text.text}
            result.per_query.append({**record, **own, "top": top})
        return hits


def _pad(rows: Sequence[Sequence[float]]) -> Tensor:
    """(Q, K), not negative, zeros after a query's own."""
    tensors = [torch.tensor(row, dtype=torch.float64).clamp(min=0) for row in rows]
    return pad_sequence(tensors, batch_first=True)
