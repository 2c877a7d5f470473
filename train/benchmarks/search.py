"""Queries and documents by their embeddings: cosines, part by part of the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.benchmarks.retrieval import Ranking, Similarity, rank_in_parts


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
