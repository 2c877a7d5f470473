"""IdioLink retrieval over the documents of a split: four query modes, and BM25."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped]
from torch import Tensor

from idiomloss.similarity import unit_vectors
from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.benchmarks.idiolink import RELEVANT_USAGES, IdioLinkBenchmarkOptions
from idiomtune.benchmarks.retrieval import (
    Ranking,
    Similarity,
    ndcg,
    r_precision,
    rank_in_blocks,
    recall_at_r,
    tie_break,
    tie_note,
)
from idiomtune.data.idiolink import Document, Split, document_request, query_request
from idiomtune.requests import EmbeddingRequest

_NDCG = 10
_TOP_SAVED = 10  # documents a query in the per-query results


class IdioLinkBenchmark(Benchmark):
    """Scores a split, or several at once (their texts are embedded once).

    Scores are means over queries; a slice without queries has none. Relevant documents are those of the
    query's idiom in its meaning; R is their number.

    Args:
        splits: from :func:`idiomtune.data.idiolink.load_split`.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247.
    """

    name = "idiolink"

    def __init__(self, splits: Sequence[Split], options: IdioLinkBenchmarkOptions) -> None:
        self.splits, self.options = list(splits), options
        self.files = [path for split in splits for path in split.files]
        self._relevance = {split.name: Relevance(split) for split in splits}
        self._ties = {split.name: tie_break(d.id for d in split.documents) for split in splits}
        self._lexical: dict[tuple[str, str], Ranking] = {}

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """Documents, and queries by mode."""
        requests: list[EmbeddingRequest] = []
        for split in self.splits:
            requests += [document_request(d) for d in split.documents]
            requests += [query_request(q, m) for m in self.options.query_modes for q in split.queries]
        return requests

    def score(self, embed: Embed) -> Result:
        """The scores of all splits and modes."""
        result = Result()
        for split in self.splits:
            documents = embed([document_request(d) for d in split.documents])
            units = unit_vectors(documents)  # once, for all parts
            for mode in self.options.query_modes:
                queries = embed([query_request(q, mode) for q in split.queries])
                ranked = self._rank(split, _cosines(queries, units))
                hits = self._relevance[split.name].hits(ranked[0])
                result.notes.extend(tie_note(f"{self.name}/{split.name}/{mode}", hits, ranked[1]))
                self._score_mode(split, mode, ranked, result)
            for lexical in self.options.bm25_modes:
                self._score_mode(split, lexical, self._ranked_by_words(split, lexical), result)
        return result

    def _rank(self, split: Split, similarity: Similarity) -> Ranking:
        """As deep as the metrics need."""
        depth = max(int(self._relevance[split.name].number().max()), _NDCG, _TOP_SAVED)
        return rank_in_blocks(similarity, len(split.queries), depth, self._ties[split.name])

    def _ranked_by_words(self, split: Split, mode: str) -> Ranking:
        # Depends on no model: computed at the first checkpoint, then reused.
        if (split.name, mode) not in self._lexical:
            queries = [q.span if mode == "bm25_span" else q.sentence for q in split.queries]
            bm25 = BM25([d.sentence for d in split.documents])
            self._lexical[split.name, mode] = self._rank(split, lambda chunk: bm25.scores(queries[chunk]))
        return self._lexical[split.name, mode]

    def _score_mode(self, split: Split, mode: str, ranked: Ranking, result: Result) -> None:
        relevance, ranking = self._relevance[split.name], ranked[0]
        hits, number = relevance.hits(ranking), relevance.number()
        idiomatic = torch.tensor([q.usage == "idiomatic" for q in split.queries])
        gold = torch.tensor([q.is_gold for q in split.queries])
        slices = {
            "": torch.ones_like(gold),
            "literal": ~idiomatic,
            "idiomatic": idiomatic,
            "gold": gold,
            "silver": ~gold,
        }
        metrics = {"r_precision": r_precision(hits, number), "ndcg@10": ndcg(hits, number, _NDCG)}
        means = [
            (metric, slice_, values[members])
            for metric, values in metrics.items()
            for slice_, members in slices.items()
        ]
        recalls: dict[str, Tensor] = {}
        for usage in RELEVANT_USAGES:
            of_usage = relevance.number(usage)
            recalls[usage] = recall_at_r(relevance.hits(ranking, usage), number, of_usage)
            means.append(("recall_at_r", usage, recalls[usage][idiomatic & (of_usage > 0)]))
        result.scores.extend(
            Score(self.name, split.name, mode, metric, slice_, values.mean().item())
            for metric, slice_, values in means
            if len(values)
        )
        values = {name: of_metric.tolist() for name, of_metric in {**metrics, **recalls}.items()}
        top = zip(ranking[:, :_TOP_SAVED].tolist(), hits[:, :_TOP_SAVED].tolist(), strict=True)
        for i, (query, documents) in enumerate(zip(split.queries, top, strict=True)):
            item: dict[str, Any] = {"split": split.name, "mode": mode, "id": query.id, "idiom": query.idiom}
            item |= {"sentence": query.sentence, "usage": query.usage}
            item |= {name: values[name][i] for name in metrics}
            if query.usage == "idiomatic":
                item["recall_at_r"] = {u: values[u][i] for u in recalls if not math.isnan(values[u][i])}
            item["top"] = [
                {"id": split.documents[n].id, "usage": split.documents[n].usage, "relevant": hit}
                for n, hit in zip(*documents, strict=True)
            ]
            result.per_query.append(item)


def _cosines(queries: Tensor, units: Tensor) -> Callable[[slice], Tensor]:
    return lambda chunk: unit_vectors(queries[chunk]) @ units.T


class Relevance:
    """Which documents of a split are relevant to which query: those of its idiom in its meaning."""

    def __init__(self, split: Split) -> None:
        classes: dict[tuple[str, str], int] = {}

        def class_numbers(records: Sequence[Document]) -> Tensor:
            return torch.tensor([classes.setdefault((r.idiom, r.meaning), len(classes)) for r in records])

        self._documents, self._queries = class_numbers(split.documents), class_numbers(split.queries)
        self._usages = [document.usage for document in split.documents]
        self._num_classes = len(classes)

    def hits(self, ranking: Tensor, usage: str | None = None) -> Tensor:
        """Bool (Q, K): whether the document at each rank is relevant, and of that usage."""
        return self._of(usage)[ranking] & (self._documents[ranking] == self._queries[:, None])

    def number(self, usage: str | None = None) -> Tensor:
        """Int (Q,): how many documents are relevant, and of that usage."""
        documents = self._documents[self._of(usage)]
        return torch.bincount(documents, minlength=self._num_classes)[self._queries]

    def _of(self, usage: str | None) -> Tensor:
        return torch.tensor([usage in (None, document_usage) for document_usage in self._usages])


class BM25:
    """Okapi BM25 of queries with every document of a corpus.

    score(q, d) = sum over the query's words w (with repetition) of
    idf(w) · tf · (k1 + 1) / (tf + k1 · (1 − b + b · |d| / mean |d|)), with
    idf(w) = ln((N − n_w + 0.5) / (n_w + 0.5)), and where that is negative, 0.25 × the mean idf of the
    vocabulary, as `rank_bm25.BM25Okapi` has it (other forms of idf miss the published figures).

    Args:
        documents: N texts, one of which has a word.
        k1: saturation of the term frequency.
        b: strength of the length normalisation.

    Attributes:
        words: counts lower-case words; an apostrophe inside a word belongs to it.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247, BM25 baseline (k1 = 0.9, b = 0.4).
    """

    def __init__(self, documents: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        self.words = CountVectorizer(token_pattern=r"\b\w+(?:['’]\w+)?\b", dtype=np.float64)
        by_word = self.words.fit_transform(documents)  # (N, V), term frequencies
        num_with = np.bincount(by_word.indices)  # (V,), documents with the word
        idf = np.log((len(documents) - num_with + 0.5) / (num_with + 0.5))
        weights = np.where(idf >= 0, idf, 0.25 * idf.mean())
        lengths = np.asarray(by_word.sum(axis=1)).ravel()
        norm = k1 * (1 - b + b * lengths / lengths.mean())  # (N,)
        rows, columns = by_word.nonzero()
        tf = by_word.data
        by_word.data = weights[columns] * tf * (k1 + 1) / (tf + norm[rows])
        self._by_word = by_word.T

    def scores(self, queries: Sequence[str]) -> Tensor:
        """(Q, N), float64; words that no document has count nothing."""
        return torch.from_numpy((self.words.transform(queries) @ self._by_word).toarray())
