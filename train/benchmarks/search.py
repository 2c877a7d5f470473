"""Queries and documents by their embeddings: cosines, part by part of the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.benchmarks.retrieval import Similarity, rank_in_parts


class Search:
    """The nearest documents of queries, by cosine; of equal ones the first in the corpus.

    Args:
        queries: (Q, D).
        documents: all of them in parts, in the corpus' order, (n, D) each.
        left_out: query → the document that it does not find, by position.
    """

    def __init__(
        self, queries: Tensor, documents: Iterable[Tensor], left_out: Mapping[int, int] | None = None
    ) -> None:
        self.queries, self.documents = queries, documents
        self.left_out = left_out or {}

    def ranking(self, depth: int) -> Tensor:
        """Int (Q, min(depth, N)), positions of documents, best first; what is left out comes last."""
        return rank_in_parts(self._parts(), len(self.queries), depth)

    def some(self, numbers: Tensor) -> Search:
        """The same for some of the queries."""
        places = {query: place for place, query in enumerate(numbers.tolist())}
        left_out = {places[query]: document for query, document in self.left_out.items() if query in places}
        return Search(self.queries[numbers], self.documents, left_out)

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
        for number in range(len(found)):
            document = self.left_out.get(chunk.start + number)
            if document is not None and first <= document < first + len(part):
                found[number, document - first] = -torch.inf
        return found
