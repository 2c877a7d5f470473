"""IdioLink retrieval over the documents of a split: four query modes, BM25, several vectors a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped]
from torch import Tensor

from idiomloss import cosine_similarity
from idiomloss.similarity import unit_vectors
from idiomtune.benchmarks import Embed, Result, Score
from idiomtune.benchmarks.idiolink import (
    RELEVANT_USAGES,
    USAGES,
    VECTORS_PER_DOCUMENT,
    IdioLinkBenchmarkOptions,
    MultivectorMode,
)
from idiomtune.benchmarks.retrieval import (
    Ranking,
    Similarity,
    ndcg,
    r_precision,
    rank_in_parts,
    recall_at_r,
    tie_break,
    tie_note,
)
from idiomtune.data.idiolink import Document, Split, document_request, query_request
from idiomtune.requests import Request, Role


def rank_scores(split: Split, mode: str, ranking: Tensor) -> Iterator[Score]:
    """For idiomatic queries: the median rank of their idiom's documents by usage, and what outranks senses.

    `above_sense/<own|other>_<usage>` is the share of such documents (of the query's own idiom, or of
    others) among those that rank before the query's median sense document, all queries together.

    Args:
        ranking: int (Q, N), corpus positions, best first.

    Returns:
        Scores, as means over queries; ranks count from 1. Empty without idiomatic queries.
    """
    score = partial(Score, "idiolink", split.name, mode)
    idioms = {d.idiom: number for number, d in enumerate(split.documents)}
    of_query = torch.tensor(
        [idioms.get(q.idiom, -1) if q.usage == "idiomatic" else -1 for q in split.queries]
    )
    ranking, of_query = ranking[of_query >= 0], of_query[of_query >= 0]
    is_own = torch.tensor([idioms[d.idiom] for d in split.documents])[ranking] == of_query[:, None]  # (Q, N)
    usage = torch.tensor([USAGES.index(d.usage) for d in split.documents])[ranking]
    before = torch.zeros_like(is_own)  # … the median sense document
    for number, name in enumerate(USAGES):
        found = is_own & (usage == number)
        counts = found.sum(1)  # (Q,)
        median = (found.cumsum(1) > (counts[:, None] - 1) // 2).long().argmax(1)[counts > 0]  # from 0
        if len(median):
            yield score("median_rank", name, (median + 1).sum().item() / len(median))
        if name == "sense":
            before[counts > 0] = torch.arange(found.shape[1]) < median[:, None]
    if total := int(before.sum()):
        for whose, owned in (("own", is_own), ("other", ~is_own)):
            for number, name in enumerate(USAGES):
                share = int((before & owned & (usage == number)).sum()) / total
                yield score("above_sense", f"{whose}_{name}", share)


def _records(split: Split) -> dict[str, Sequence[Document]]:
    """The sentences that are compared. Idioms without a query (`val+train`) may have been trained on."""
    asked = {q.idiom for q in split.queries}
    simple = [d for d in split.documents if d.usage == "simplification"]
    return {
        "queries": [q for q in split.queries if q.usage == "idiomatic"],
        "simplifications": simple,
        "senses": [d for d in split.documents if d.usage == "sense"],
        "asked simplifications": [d for d in simple if d.idiom in asked],
        "idiomatic": [d for d in split.documents if d.usage == "idiomatic" and d.idiom in asked],
    }


def knowledge_requests(split: Split) -> dict[str, list[Request]]:
    """The texts that :func:`knowledge_scores` compares."""
    spans = {
        name: [Request(r.sentence, r.span_offsets, pooling="span") for r in records]
        for name, records in _records(split).items()
    }
    return {
        **spans,
        "idioms alone": [Request(idiom) for idiom in sorted({q.idiom for q in split.queries})],
        "documents": [document_request(d) for d in split.documents],
        "simplifications alone": [Request(d.span) for d in _records(split)["simplifications"]],
    }


def knowledge_scores(split: Split, embed: Embed) -> Iterator[Score]:
    """Does the model know what the idioms mean? The share of idioms that it gets right.

    Only the idioms of the split's queries count. A vector *finds* its idiom if, among the centroids of all
    idioms of the split's documents, its own idiom's is the nearest (chance: 1 / number of idioms).
    Scores, under `knowledge/`; a pair with an empty side has none:

    - `span_to_simplification`: idiomatic queries' spans among the spans of simplifications: the meaning
      of an idiom in use;
    - `idiom_to_simplification`: the idiom's words alone among the words of those spans alone: the meaning
      without any context to guess it from;
    - `simplification_to_sense`: the spans of simplifications among the spans of sense documents: whether
      senses are found once the meaning is in plain words. The first two cannot be expected to be better
      than this;
    - `chance`;
    - `senses_found_by_idiom` and `senses_found_by_simplification`: the share of an idiom's sense documents
      among the first R when its idiomatic documents search by their spans, and when its simplifications do:
      much the same sentences, with the meaning in plain words. R is the number of the idiom's documents in
      the idiomatic meaning; a document does not find itself.
    """
    rows = {name: embed(requests) for name, requests in knowledge_requests(split).items()}
    records = _records(split)
    idioms = {name: [record.idiom for record in of_name] for name, of_name in records.items()}
    idioms["idioms alone"] = sorted({q.idiom for q in split.queries})
    idioms["simplifications alone"] = idioms["simplifications"]
    score = partial(Score, "idiolink", split.name, "knowledge")
    yield score("chance", value=1 / len({d.idiom for d in split.documents}))
    for metric, asked, among in (
        ("span_to_simplification", "queries", "simplifications"),
        ("idiom_to_simplification", "idioms alone", "simplifications alone"),
        ("simplification_to_sense", "asked simplifications", "senses"),
    ):
        if len(rows[asked]) and len(rows[among]):
            yield score(metric, value=_accuracy(rows[asked], idioms[asked], rows[among], idioms[among]))
    for metric, asked in (("idiom", "idiomatic"), ("simplification", "asked simplifications")):
        shares = list(_senses_found(split, records[asked], rows[asked], rows["documents"]))
        if shares:
            yield score(f"senses_found_by_{metric}", value=sum(shares) / len(shares))


def _senses_found(
    split: Split, asking: Sequence[Document], queries: Tensor, documents: Tensor
) -> Iterator[float]:
    """The share of sense documents within the first R, for each record whose idiom has any."""
    for record, similarity in zip(asking, cosine_similarity(queries, documents), strict=True):
        is_relevant = [(d.idiom, d.meaning) == (record.idiom, "idiomatic") for d in split.documents]
        is_sense = [hit and d.usage == "sense" for hit, d in zip(is_relevant, split.documents, strict=True)]
        similarity[[d.id == record.id for d in split.documents]] = -torch.inf
        first = similarity.argsort(descending=True, stable=True)[: sum(is_relevant)].tolist()
        if any(is_sense):
            yield sum(is_sense[n] for n in first) / sum(is_sense)


def _accuracy(asked: Tensor, asked_idioms: Sequence[str], among: Tensor, idioms: Sequence[str]) -> float:
    """Share of the vectors `asked` whose nearest centroid of `among` is that of their own idiom."""
    names = sorted(set(idioms))
    owner = torch.tensor([names.index(idiom) for idiom in idioms])  # (M,)
    centroids = torch.zeros(len(names), among.shape[1]).index_add(0, owner, unit_vectors(among))
    nearest: list[int] = cosine_similarity(asked, centroids).argmax(1).tolist()
    right = sum(names[n] == idiom for n, idiom in zip(nearest, asked_idioms, strict=True))
    return right / len(asked_idioms)


_NDCG = 10
_TOP_SAVED = 10  # documents a query in the per-query results
_DIGITS = 4  # of a coordinate in maps; unit vectors are 2 apart at most
_FEWEST = 3  # documents of an idiom that has a map
# As BM25's tokens, but for hyphens, which hold a word together.
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_MAX_SIMILARITIES = 16_000_000  # in memory: 64 MB in float32


class IdioLinkBenchmark:
    """Scores a split, or several at once (their texts are embedded once).

    The modes `span_window` and `span_late` are beyond the published protocol, with several vectors a document
    (how many is the score `vectors_per_document`): the query's span against the document's best window of
    words; each word of the query's span against its best word there. With `diagnosis`, see
    :mod:`idiomtune.benchmarks.idiolink.scoring`.

    Scores are means over queries; a slice without queries has none. Relevant documents are those of the
    query's idiom in its meaning; R is their number.

    Args:
        splits: from :func:`idiomtune.data.idiolink.load_split`.

    References:
        Hashiloni et al. 2026, arXiv 2605.22247.
    """

    name = "idiolink"
    without_gold: Sequence[str] = ()

    def __init__(self, splits: Sequence[Split], options: IdioLinkBenchmarkOptions) -> None:
        self.splits, self.options = list(splits), options
        self.files = [path for split in splits for path in split.files]
        self._relevance = {split.name: Relevance(split) for split in splits}
        self._ties = {split.name: tie_break(d.id for d in split.documents) for split in splits}
        self._lexical: dict[tuple[str, str], Ranking] = {}

    @property
    def announced(self) -> list[Request]:
        """Documents, queries by mode, pieces of both, and what the diagnosis needs."""
        requests: list[Request] = []
        for split in self.splits:
            requests += [document_request(d) for d in split.documents]
            requests += [query_request(q, m) for m in self.options.query_modes for q in split.queries]
            for mode in self.options.multivector_modes:
                requests += self._pieces(split.queries, mode, "query")[0]
                requests += self._pieces(split.documents, mode, "document")[0]
            if self.options.diagnosis:
                requests += [r for part in knowledge_requests(split).values() for r in part]
        return requests

    def score(self, embed: Embed) -> Result:
        """The scores of all splits and modes."""
        result = Result()
        for split in self.splits:
            documents = embed([document_request(d) for d in split.documents])
            units = unit_vectors(documents)  # once, for all parts
            result.maps.extend(idiom_maps(split, documents))
            for mode in self.options.query_modes:
                queries = embed([query_request(q, mode) for q in split.queries])
                self._score_mode(split, mode, self._rank(split, _cosines(queries, units)), result)
            for several in self.options.multivector_modes:
                asked, query_of = self._pieces(split.queries, several, "query")
                pieces, document_of = self._pieces(split.documents, several, "document")
                similarity = mean_of_best(embed(asked), query_of, embed(pieces), document_of)
                self._score_mode(split, several, self._rank(split, similarity.__getitem__), result)
                number = len(pieces) / len(split.documents)
                result.scores.append(Score(self.name, split.name, several, VECTORS_PER_DOCUMENT, "", number))
            for lexical in self.options.bm25_modes:
                self._score_mode(split, lexical, self._ranked_by_words(split, lexical), result)
            if self.options.diagnosis:
                result.scores.extend(knowledge_scores(split, embed))
        return result

    def _pieces(
        self, records: Sequence[Document], mode: MultivectorMode, role: Role
    ) -> tuple[list[Request], list[int]]:
        """The pieces of texts that have a vector each, and of which record each is."""
        requests: list[Request] = []
        owner: list[int] = []
        for number, record in enumerate(records):
            if role == "document":
                size = self.options.window_words if mode == "span_window" else 1
                spans = windows(record.sentence, size)
            elif mode == "span_window":
                spans = [record.span_offsets]
            else:
                spans = words_within(record.sentence, record.span_offsets)
            requests += [Request(record.sentence, span, role=role, pooling="span") for span in spans]
            owner += [number] * len(spans)
        return requests, owner

    def _rank(self, split: Split, similarity: Similarity) -> Ranking:
        """As deep as the metrics need."""
        num = len(split.documents)
        needed = max(int(self._relevance[split.name].number().max()), _NDCG, _TOP_SAVED)
        depth = num if self.options.diagnosis else needed
        return rank_in_parts([(num, similarity)], len(split.queries), depth, self._ties[split.name])

    def _ranked_by_words(self, split: Split, mode: str) -> Ranking:
        # Depends on no model: computed at the first checkpoint, then reused.
        if (split.name, mode) not in self._lexical:
            queries = [q.span if mode == "bm25_span" else q.sentence for q in split.queries]
            bm25 = BM25([d.sentence for d in split.documents])
            self._lexical[split.name, mode] = self._rank(split, lambda chunk: bm25.scores(queries[chunk]))
        return self._lexical[split.name, mode]

    def _score_mode(self, split: Split, mode: str, ranked: Ranking, result: Result) -> None:
        relevance, (ranking, similarities) = self._relevance[split.name], ranked
        hits, number = relevance.hits(ranking), relevance.number()
        result.notes.extend(tie_note(f"{self.name}/{split.name}/{mode}", hits, similarities))
        idiomatic = torch.tensor([q.usage == "idiomatic" for q in split.queries])
        gold = torch.tensor([q.is_gold for q in split.queries])
        everything = torch.ones_like(gold)
        slices = {
            "": everything,
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
        if self.options.diagnosis:
            result.scores.extend(rank_scores(split, mode, ranking))
        result.per_query.extend(_items(split, mode, ranking, hits, metrics, recalls))


def _cosines(queries: Tensor, units: Tensor) -> Callable[[slice], Tensor]:
    return lambda chunk: unit_vectors(queries[chunk]) @ units.T


class Relevance:
    """Which documents of a split are relevant to which query: those of its idiom in its meaning."""

    def __init__(self, split: Split) -> None:
        classes: dict[tuple[str, str], int] = {}

        def numbered(records: Sequence[Document]) -> Tensor:
            return torch.tensor([classes.setdefault((r.idiom, r.meaning), len(classes)) for r in records])

        self._documents, self._queries = numbered(split.documents), numbered(split.queries)
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


def _items(
    split: Split,
    mode: str,
    ranking: Tensor,
    hits: Tensor,
    metrics: dict[str, Tensor],
    recalls: dict[str, Tensor],
) -> list[dict[str, Any]]:
    """A record for each query."""
    columns = {name: values.tolist() for name, values in metrics.items()}
    by_usage = {usage: values.tolist() for usage, values in recalls.items()}
    items = []
    for i, (query, top) in enumerate(zip(split.queries, ranking[:, :_TOP_SAVED].tolist(), strict=True)):
        item: dict[str, Any] = {"split": split.name, "mode": mode, "id": query.id, "idiom": query.idiom}
        item |= {"sentence": query.sentence, "usage": query.usage}
        item |= {name: values[i] for name, values in columns.items()}
        if query.usage == "idiomatic":
            item["recall_at_r"] = {u: values[i] for u, values in by_usage.items() if values[i] == values[i]}
        item["top"] = [
            {"id": split.documents[n].id, "usage": split.documents[n].usage, "relevant": hit}
            for n, hit in zip(top, hits[i, :_TOP_SAVED].tolist(), strict=True)
        ]
        items.append(item)
    return items


def idiom_maps(split: Split, documents: Tensor) -> list[dict[str, Any]]:
    """A record for each idiom of the split's queries.

    It has the idiom's documents (`points`) in the plane of their first two principal components, and the
    share of variance that each of the two explains (`explained`). Unit vectors are taken, as cosine
    similarity takes them. On both axes the idiomatic meaning's mean is the greater.

    Args:
        documents: embeddings of the split's documents (N, D).
    """
    rows: dict[str, list[int]] = {query.idiom: [] for query in split.queries}
    for row, document in enumerate(split.documents):
        if document.idiom in rows:
            rows[document.idiom].append(row)
    return [
        {"split": split.name, "idiom": idiom, **_plane([split.documents[i] for i in of_it], documents[of_it])}
        for idiom, of_it in rows.items()
        if len(of_it) >= _FEWEST and documents.shape[1] > 1
    ]


def _plane(documents: Sequence[Document], embeddings: Tensor) -> dict[str, Any]:
    units = unit_vectors(embeddings)
    left, values, _ = torch.linalg.svd(units - units.mean(0), full_matrices=False)
    variance = values.square()
    places = left[:, :2] * values[:2]  # (N, 2)
    is_idiomatic = torch.tensor([document.meaning == "idiomatic" for document in documents])
    if is_idiomatic.any() and not is_idiomatic.all():  # else an axis' direction means nothing
        places *= torch.where(places[is_idiomatic].mean(0) < places[~is_idiomatic].mean(0), -1.0, 1.0)
    explained = variance[:2] / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    return {
        "explained": [round(share, _DIGITS) for share in explained.tolist()],
        "points": [
            {"id": document.id, "usage": document.usage, "x": round(x, _DIGITS), "y": round(y, _DIGITS)}
            for document, (x, y) in zip(documents, places.tolist(), strict=True)
        ],
    }


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
