"""Documents as several vectors each: which pieces of a text are embedded, and how they are compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from idiomloss import cosine_similarity

# As BM25's tokens, but for hyphens, which hold a word together.
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_MAX_SIMILARITIES = 16_000_000  # in memory: 64 MB in float32


def windows(text: str, size: int) -> list[tuple[int, int]]:
    """Character offsets of every run of `size` words; of the whole text if it has fewer.

    A text without any word is one window.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    if not words:
        return [(0, len(text))]
    last = max(len(words) - size, 0)
    return [(words[i][0], words[min(i + size, len(words)) - 1][1]) for i in range(last + 1)]


def words_within(text: str, span: tuple[int, int]) -> list[tuple[int, int]]:
    """Character offsets of the words that overlap `span`; the span itself if none does."""
    found = [m.span() for m in _WORD.finditer(text) if m.start() < span[1] and m.end() > span[0]]
    return found or [span]


def mean_of_best(
    queries: Tensor, query_of: Sequence[int], documents: Tensor, document_of: Sequence[int]
) -> Tensor:
    """The mean over a query's vectors of the similarity with the most similar vector of a document.

    With one vector a query this scores the document's best window; with one vector a word it is late
    interaction (Khattab and Zaharia 2020, arXiv 2004.12832, eq. 3, divided by the query's number of vectors).

    Args:
        queries: (U, D).
        query_of: U numbers from 0, not falling: the query of each vector.
        documents: (V, D).
        document_of: V numbers from 0, the document of each vector.

    Returns:
        (Q, N) for the Q queries and N documents numbered.
    """
    owner = torch.as_tensor(document_of, device=documents.device)
    num_documents = int(owner.max()) + 1
    rows = []
    for part in torch.split(queries, max(_MAX_SIMILARITIES // len(documents), 1)):
        similarity = cosine_similarity(part, documents)
        best = similarity.new_full((len(part), num_documents), -torch.inf)
        rows.append(best.scatter_reduce(1, owner.expand(len(part), -1), similarity, "amax"))
    query_numbers = torch.as_tensor(query_of, device=queries.device)  # (U,)
    counts = torch.bincount(query_numbers)  # (Q,)
    total = rows[0].new_zeros(len(counts), num_documents).index_add(0, query_numbers, torch.cat(rows))
    return total / counts[:, None]
