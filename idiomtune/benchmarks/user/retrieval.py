"""The user's own collections: does a query find its relevant documents?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.retrieval import nearest, tie_note
from idiomtune.benchmarks.user import RETRIEVAL_METRICS, UserRetrievalOptions
from idiomtune.benchmarks.user.collections import Collection, in_mode, read_collection, span_note
from idiomtune.benchmarks.user.ranking import add_rankings
from idiomtune.requests import Request

_DEPTH = 100  # documents that are ranked


def build(_settings: Any, options: UserRetrievalOptions) -> UserRetrievalBenchmark:
    """The benchmark on all named folders."""
    reading = options.judgements, options.instruction, options.missing, options.exclude_self
    return UserRetrievalBenchmark(
        [read_collection(name, path, *reading) for name, path in options.paths.items()]
    )


class UserRetrievalBenchmark:
    """Metrics of the first hundred documents by cosine; means over queries with a relevant document.

    The gain of nDCG is a judgement's grade, 0 without one, as in trec_eval; for all else a document
    with a grade above 0 is relevant. MAP and recall divide by the number of all relevant documents. Documents
    with equal cosines are ordered by hashes of their ids.

    In the mode `span`, queries and documents with a span are embedded by it, and others whole.

    Args:
        collections: from :func:`idiomtune.benchmarks.user.collections.read_collection`.
        name: first part of the score keys.
    """

    without_gold: Sequence[str] = ()

    def __init__(self, collections: Sequence[Collection], *, name: str = "own_retrieval") -> None:
        self.name, self.collections = name, collections
        self.files = [path for collection in collections for path in collection.files]

    @property
    def requests(self) -> list[Request]:
        """Documents and queries, by each mode."""
        requests: list[Request] = []
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
                hits = add_rankings(
                    result,
                    (self.name, collection.name, mode),
                    RETRIEVAL_METRICS,
                    collection.queries,
                    positions.tolist(),
                    collection.shown,
                )
                result.notes.extend(tie_note(f"{key}, by {mode}", hits, cosines))
            if collection.num_left_out:
                result.notes.append(
                    f"{key}: {collection.num_left_out} of {collection.num_left_out + len(queries)} queries "
                    "have no relevant document to find, and are left out"
                )
            result.notes.extend(span_note(queries, f"{key}/span"))
        return result
