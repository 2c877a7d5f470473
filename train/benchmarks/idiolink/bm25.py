"""Okapi BM25, the lexical baseline of IdioLink."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

_TOKEN = re.compile(r"\b\w+(?:['’]\w+)?\b")


def tokenise(text: str) -> list[str]:
    """Lower-case words; an apostrophe inside a word belongs to it."""
    return _TOKEN.findall(text.lower())


class BM25:
    """Okapi BM25 of queries with every document of a corpus.

    score(q, d) = sum over the query's words w (with repetition) of
    idf(w) · tf · (k1 + 1) / (tf + k1 · (1 − b + b · |d| / mean |d|)), with
    idf(w) = ln((N − n_w + 0.5) / (n_w + 0.5)), and where that is negative, 0.25 × the mean idf of the
    vocabulary, as `rank_bm25.BM25Okapi` has it (other forms of idf miss the published figures).

    Args:
        documents: N texts.
        k1: saturation of the term frequency.
        b: strength of the length normalisation.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247, BM25 baseline (k1 = 0.9, b = 0.4).
    """

    def __init__(self, documents: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        counts = [Counter(tokenise(document)) for document in documents]
        vocabulary = {word: i for i, word in enumerate(dict.fromkeys(w for c in counts for w in c))}
        lengths = np.array([c.total() for c in counts], dtype=np.float64)
        norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-12))  # (N,)

        document_frequency = Counter(word for c in counts for word in c)
        idf = {w: math.log((len(counts) - n + 0.5) / (n + 0.5)) for w, n in document_frequency.items()}
        floor = 0.25 * sum(idf.values()) / max(len(idf), 1)
        weights = np.array([idf[w] if idf[w] >= 0 else floor for w in vocabulary])

        by_word = _count_matrix(counts, vocabulary)  # (N, V), term frequencies
        rows, columns = by_word.nonzero()
        tf = by_word.data
        by_word.data = weights[columns] * tf * (k1 + 1) / (tf + norm[rows])
        self._vocabulary = vocabulary
        self._by_word = by_word.T

    def scores(self, queries: Sequence[str]) -> Tensor:
        """(Q, N), float64."""
        asked = [Counter(tokenise(query)) for query in queries]
        return torch.from_numpy((_count_matrix(asked, self._vocabulary) @ self._by_word).toarray())


def _count_matrix(counts: Sequence[Counter[str]], vocabulary: dict[str, int]) -> csr_array:
    """How often each word of the vocabulary occurs in each text; words outside it are left out."""
    kept = [[(vocabulary[w], n) for w, n in c.items() if w in vocabulary] for c in counts]
    indices = [i for row in kept for i, _ in row]
    data = np.array([n for row in kept for _, n in row], dtype=np.float64)
    ends = np.cumsum([0, *(len(row) for row in kept)])
    return csr_array((data, indices, ends), shape=(len(counts), len(vocabulary)))
