"""IdioLink retrieval over the documents of a split: four query modes, BM25, several vectors a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.benchmarks import BenchmarkResult
from train.benchmarks.idiolink.bm25 import BM25
from train.benchmarks.idiolink.diagnosis import Knowledge, rank_scores
from train.benchmarks.idiolink.keys import (
    IDIOLINK_RELEVANT_USAGES,
    VECTORS_PER_DOCUMENT,
    Bm25Mode,
    MultivectorMode,
    idiolink_key,
)
from train.benchmarks.idiolink.maps import idiom_maps
from train.benchmarks.idiolink.multivector import mean_of_best, windows, words_within
from train.benchmarks.retrieval import (
    Ranking,
    ndcg,
    r_precision,
    rank_in_parts,
    recall_at_r,
    tie_break,
    tie_note,
)
from train.data.idiolink import (
    Document,
    Split,
    document_request,
    query_request,
)
from train.data.names import QueryMode
from train.requests import Request, Role

_NDCG = 10
_TOP_SAVED = 10  # documents a query in the per-query results


class IdioLinkBenchmark:
    """Scores a split, or several at once (their texts are embedded once).

    Args:
        splits: from :func:`train.data.idiolink.load_split`.
        query_modes: of `sentence`, `span`, `instruction_sentence`, `instruction_span`.
        bm25_modes: of `bm25_sentence`, `bm25_span`: which text is the lexical query.
        multivector_modes: beyond the published protocol, with several vectors a document (how many is the
            score `vectors_per_document`): `span_window`, the query's span against the document's best
            window of words; `span_late`, each word of the query's span against its best word there.
        window_words: length of a window.
        diagnosis: also score where sense documents rank, what outranks them, and whether the model knows
            the idioms' meanings, see :mod:`train.benchmarks.idiolink.diagnosis`.

    Scores are means over queries, under the keys in `keys`; a slice without queries
    has no key. Relevant documents are those of the query's idiom in its meaning; R is their number.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247.
    """

    name = "idiolink"
    without_gold: Sequence[str] = ()

    def __init__(
        self,
        splits: Sequence[Split],
        query_modes: Sequence[QueryMode],
        bm25_modes: Sequence[Bm25Mode] = (),
        multivector_modes: Sequence[MultivectorMode] = (),
        window_words: int = 3,
        diagnosis: bool = False,
    ) -> None:
        self.splits = list(splits)
        self.query_modes = list(query_modes)
        self.bm25_modes = list(bm25_modes)
        self.multivector_modes = list(multivector_modes)
        self.window_words = window_words
        self._knowledge = {split.name: Knowledge(split) for split in self.splits} if diagnosis else {}
        self.files: list[Path] = [path for split in splits for path in split.files]
        self.requests: list[Request] = []
        self._place: dict[tuple[str, str], slice] = {}  # (split, what) → rows
        self._owner: dict[tuple[str, str], list[int]] = {}  # (split, what) → query or document of each row
        for split in self.splits:
            self._ask(split, "documents", [document_request(d) for d in split.documents])
            for mode in self.query_modes:
                self._ask(split, mode, [query_request(q, mode) for q in split.queries])
            for several in self.multivector_modes:
                self._ask_pieces(split, several, "queries", split.queries)
                self._ask_pieces(split, several, "documents", split.documents)
            if diagnosis:
                self._ask(split, "knowledge", self._knowledge[split.name].requests)
        self._relevance = {split.name: Relevance(split) for split in self.splits}
        self._ties = {split.name: tie_break(d.id for d in split.documents) for split in self.splits}
        self._lexical: dict[tuple[str, str], Ranking] = {}

    def _ask(self, split: Split, what: str, requests: Sequence[Request]) -> None:
        start = len(self.requests)
        self.requests.extend(requests)
        self._place[split.name, what] = slice(start, len(self.requests))

    def _ask_pieces(
        self, split: Split, mode: MultivectorMode, side: str, records: Sequence[Document]
    ) -> None:
        role: Role = "query" if side == "queries" else "document"
        requests, owner = [], []
        for number, record in enumerate(records):
            if side == "documents":
                pieces = windows(record.sentence, self.window_words if mode == "span_window" else 1)
            elif mode == "span_window":
                pieces = [record.span_offsets]
            else:
                pieces = words_within(record.sentence, record.span_offsets)
            requests += [Request(record.sentence, piece, role=role, pooling="span") for piece in pieces]
            owner += [number] * len(pieces)
        self._ask(split, f"{mode} {side}", requests)
        self._owner[split.name, f"{mode} {side}"] = owner

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        result = BenchmarkResult({})
        for split in self.splits:
            documents = embeddings[self._place[split.name, "documents"]]
            result.maps.extend(idiom_maps(split, documents))
            for mode in self.query_modes:
                queries = embeddings[self._place[split.name, mode]]
                self._score_mode(split, mode, self._rank(split, _cosines(queries, documents)), result)
            for several in self.multivector_modes:
                asked, held = (split.name, f"{several} queries"), (split.name, f"{several} documents")
                similarity = mean_of_best(
                    embeddings[self._place[asked]],
                    self._owner[asked],
                    embeddings[self._place[held]],
                    self._owner[held],
                )
                self._score_mode(split, several, self._rank(split, similarity.__getitem__), result)
                key = idiolink_key(split.name, several, VECTORS_PER_DOCUMENT)
                result.scores[key] = len(self._owner[held]) / len(split.documents)
            for lexical in self.bm25_modes:
                self._score_mode(split, lexical, self._ranked_by_words(split, lexical), result)
            if self._knowledge:
                asked_for = embeddings[self._place[split.name, "knowledge"]]
                result.scores.update(self._knowledge[split.name].score(asked_for))
        return result

    def _rank(self, split: Split, similarity: Callable[[slice], Tensor]) -> Ranking:
        """As deep as the metrics need."""
        num, ties = len(split.documents), self._ties[split.name]
        depth = num if self._knowledge else max(self._relevance[split.name].max_number, _NDCG, _TOP_SAVED)
        return rank_in_parts([(num, similarity)], len(split.queries), depth, ties)

    def _ranked_by_words(self, split: Split, mode: str) -> Ranking:
        # Depends on no model: computed at the first checkpoint, kept for the rest.
        if (split.name, mode) not in self._lexical:
            queries = [q.span if mode == "bm25_span" else q.sentence for q in split.queries]
            bm25 = BM25([d.sentence for d in split.documents])
            self._lexical[split.name, mode] = self._rank(split, lambda chunk: bm25.scores(queries[chunk]))
        return self._lexical[split.name, mode]

    def _score_mode(self, split: Split, mode: str, ranked: Ranking, result: BenchmarkResult) -> None:
        relevance, (ranking, values) = self._relevance[split.name], ranked
        hits = relevance.hits(ranking)
        result.notes.extend(tie_note(f"{self.name}/{split.name}/{mode}", hits, values))
        metrics = {
            "r_precision": r_precision(hits, relevance.number),
            "ndcg@10": ndcg(hits, relevance.number, _NDCG),
        }

        idiomatic = torch.tensor([q.usage == "idiomatic" for q in split.queries])
        gold = torch.tensor([q.is_gold for q in split.queries])
        slices = {
            None: torch.ones_like(gold),
            "literal": ~idiomatic,
            "idiomatic": idiomatic,
            "gold": gold,
            "silver": ~gold,
        }
        for metric, values in metrics.items():
            for slice_, members in slices.items():
                if members.any():
                    key = idiolink_key(split.name, mode, metric, slice_)
                    result.scores[key] = values[members].mean().item()

        recalls = {}
        for usage in IDIOLINK_RELEVANT_USAGES:
            is_usage, number = relevance.by_usage(usage)
            recalls[usage] = recall_at_r(hits & is_usage[ranking], relevance.number, number)
            values = recalls[usage][idiomatic & (number > 0)]
            if len(values):
                key = idiolink_key(split.name, mode, "recall_at_r", usage)
                result.scores[key] = values.mean().item()
        if self._knowledge:
            result.scores.update(rank_scores(split, mode, ranking))
        result.per_query.extend(_per_query(split, mode, ranking, hits, metrics, recalls))


def _cosines(queries: Tensor, documents: Tensor) -> Callable[[slice], Tensor]:
    units = unit_vectors(documents)  # once, for all parts
    return lambda chunk: unit_vectors(queries[chunk]) @ units.T


class Relevance:
    """Which documents of a split are relevant to which query: those of its idiom in its meaning.

    Attributes:
        number: int (Q,), R.
        max_number: the greatest R.
    """

    def __init__(self, split: Split) -> None:
        classes: dict[tuple[str, str], int] = {}
        self._documents = torch.tensor([classes.setdefault(_class(d), len(classes)) for d in split.documents])
        self._queries = torch.tensor([classes.setdefault(_class(q), len(classes)) for q in split.queries])
        self._usages = [document.usage for document in split.documents]
        self._num_classes = len(classes)
        self.number = self._count(self._documents)
        self.max_number = int(self.number.max())

    def hits(self, ranking: Tensor) -> Tensor:
        """Bool (Q, K): whether the document at each rank is relevant."""
        return self._documents[ranking] == self._queries[:, None]

    def by_usage(self, usage: str) -> tuple[Tensor, Tensor]:
        """Bool (N,), which documents have that usage, and int (Q,), how many of these are relevant."""
        is_usage = torch.tensor([document_usage == usage for document_usage in self._usages])
        return is_usage, self._count(self._documents[is_usage])

    def _count(self, documents: Tensor) -> Tensor:
        return torch.bincount(documents, minlength=self._num_classes)[self._queries]


def _class(record: Document) -> tuple[str, str]:
    return record.idiom, record.meaning


def _per_query(
    split: Split,
    mode: str,
    ranking: Tensor,
    hits: Tensor,
    metrics: dict[str, Tensor],
    recalls: dict[str, Tensor],
) -> list[dict[str, Any]]:
    rows = []
    columns = {name: values.tolist() for name, values in metrics.items()}
    by_usage = {usage: values.tolist() for usage, values in recalls.items()}
    for i, (query, top) in enumerate(zip(split.queries, ranking[:, :_TOP_SAVED].tolist(), strict=True)):
        row: dict[str, Any] = {
            "split": split.name,
            "mode": mode,
            "id": query.id,
            "idiom": query.idiom,
            "sentence": query.sentence,
            "usage": query.usage,
        }
        row |= {name: values[i] for name, values in columns.items()}
        if query.usage == "idiomatic":
            row["recall_at_r"] = {u: values[i] for u, values in by_usage.items() if values[i] == values[i]}
        row["top"] = [
            {"id": split.documents[n].id, "usage": split.documents[n].usage, "relevant": hit}
            for n, hit in zip(top, hits[i, :_TOP_SAVED].tolist(), strict=True)
        ]
        rows.append(row)
    return rows
