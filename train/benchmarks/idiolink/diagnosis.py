"""Why sense documents are not found: where they rank, what outranks them, what the model knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from idiomloss import cosine_similarity
from train.benchmarks.idiolink.keys import IDIOLINK_USAGES, diagnosis_key, knowledge_key
from train.data.idiolink import Document, Split, document_request
from train.requests import Request


def rank_scores(split: Split, mode: str, ranking: Tensor) -> dict[str, float]:
    """For idiomatic queries: the median rank of their idiom's documents by usage, and what outranks senses.

    `above_sense/<own|other>_<usage>` is the share of such documents (of the query's own idiom, or of
    others) among those that rank before the query's median sense document, all queries together.

    Args:
        ranking: int (Q, N), corpus positions, best first.

    Returns:
        Scores, as means over queries; ranks count from 1. Empty without idiomatic queries.
    """
    usages = [d.usage for d in split.documents]
    above: dict[str, int] = {f"{whose}_{usage}": 0 for whose in ("own", "other") for usage in IDIOLINK_USAGES}
    medians: dict[str, list[float]] = {usage: [] for usage in IDIOLINK_USAGES}
    for query, order in zip(split.queries, ranking.tolist(), strict=True):
        if query.usage != "idiomatic":
            continue
        same_idiom = [split.documents[d].idiom == query.idiom for d in order]
        for usage in IDIOLINK_USAGES:
            ranks = [r for r, d in enumerate(order, 1) if same_idiom[r - 1] and usages[d] == usage]
            if ranks:
                median = ranks[(len(ranks) - 1) // 2]
                medians[usage].append(median)
                if usage == "sense":
                    for r, d in enumerate(order[: median - 1]):
                        above[f"{'own' if same_idiom[r] else 'other'}_{usages[d]}"] += 1
    scores = {
        diagnosis_key(split.name, mode, "median_rank", usage): sum(values) / len(values)
        for usage, values in medians.items()
        if values
    }
    total = sum(above.values())
    if total:
        scores |= {diagnosis_key(split.name, mode, "above_sense", who): n / total for who, n in above.items()}
    return scores


class Knowledge:
    """Does the model know what the idioms mean? Texts to embed, then shares of idioms it gets right.

    Only the idioms of the split's queries count. A vector *finds* its idiom if, among the centroids of all
    idioms of the split's documents, its own idiom's is the nearest (chance: 1 / number of idioms).
    Scores, under `knowledge/`:

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

    def __init__(self, split: Split) -> None:
        self.split = split
        self.idioms = sorted({d.idiom for d in split.documents})
        queries = [q for q in split.queries if q.usage == "idiomatic"]
        asked = {q.idiom for q in split.queries}  # the others may have been trained on (`val+train`)
        simple = [d for d in split.documents if d.usage == "simplification"]
        asked_simple = [d for d in simple if d.idiom in asked]
        idiomatic = [d for d in split.documents if d.usage == "idiomatic" and d.idiom in asked]
        self._asking = {"idiom": idiomatic, "simplification": asked_simple}
        sense = [d for d in split.documents if d.usage == "sense"]
        self._parts: dict[str, tuple[list[Request], list[str]]] = {
            "query spans": ([_span(q) for q in queries], [q.idiom for q in queries]),
            "simplification spans": ([_span(d) for d in simple], [d.idiom for d in simple]),
            "sense spans": ([_span(d) for d in sense], [d.idiom for d in sense]),
            "asked simplification spans": ([_span(d) for d in asked_simple], [d.idiom for d in asked_simple]),
            "idioms alone": ([Request(i) for i in sorted(asked)], sorted(asked)),
            "idiomatic spans": ([_span(d) for d in idiomatic], [d.idiom for d in idiomatic]),
            "documents": ([document_request(d) for d in split.documents], []),
            "simplifications alone": ([Request(d.span) for d in simple], [d.idiom for d in simple]),
        }
        self.requests = [request for requests, _ in self._parts.values() for request in requests]

    def score(self, embeddings: Tensor) -> dict[str, float]:
        """Scores from embeddings (R, D), row i for `requests[i]`; a pair with an empty side has none."""
        sizes = [len(requests) for requests, _ in self._parts.values()]
        vectors = dict(zip(self._parts, torch.split(embeddings, sizes), strict=True))
        scores = {knowledge_key(self.split.name, "chance"): 1 / len(self.idioms)}
        for name, asked, held in (
            ("span_to_simplification", "query spans", "simplification spans"),
            ("idiom_to_simplification", "idioms alone", "simplifications alone"),
            ("simplification_to_sense", "asked simplification spans", "sense spans"),
        ):
            if len(vectors[asked]) and len(vectors[held]):
                accuracy = _found(vectors[asked], self._parts[asked][1], vectors[held], self._parts[held][1])
                scores[knowledge_key(self.split.name, name)] = accuracy
        for kind, spans in (("idiom", "idiomatic spans"), ("simplification", "asked simplification spans")):
            found = self._senses_found(self._asking[kind], vectors[spans], vectors["documents"])
            if found is not None:
                scores[knowledge_key(self.split.name, f"senses_found_by_{kind}")] = found
        return scores

    def _senses_found(self, asking: Sequence[Document], queries: Tensor, documents: Tensor) -> float | None:
        """Mean share of sense documents within the first R; None where there are none."""
        position = {d.id: i for i, d in enumerate(self.split.documents)}
        shares = []
        for record, similarity in zip(asking, cosine_similarity(queries, documents), strict=True):
            relevant = [
                i
                for i, d in enumerate(self.split.documents)
                if (d.idiom, d.meaning) == (record.idiom, "idiomatic")
            ]
            senses = {i for i in relevant if self.split.documents[i].usage == "sense"}
            similarity[position[record.id]] = -torch.inf
            first = similarity.argsort(descending=True, stable=True)[: len(relevant)].tolist()
            if senses:
                shares.append(len(senses & set(first)) / len(senses))
        return sum(shares) / len(shares) if shares else None


def _span(record: Document) -> Request:
    return Request(record.sentence, record.span_offsets, pooling="span")


def _found(asked: Tensor, asked_idioms: Sequence[str], held: Tensor, held_idioms: Sequence[str]) -> float:
    """Share of the vectors `asked` whose nearest centroid of `held` is that of their own idiom."""
    idioms = sorted(set(held_idioms))
    number = {idiom: i for i, idiom in enumerate(idioms)}
    unit = torch.nn.functional.normalize(held, dim=-1)
    idiom_numbers = torch.tensor([number[idiom] for idiom in held_idioms])  # (held,)
    centroids = torch.zeros(len(idioms), held.shape[1]).index_add(0, idiom_numbers, unit)  # (idioms, D)
    nearest: list[int] = cosine_similarity(asked, centroids).argmax(1).tolist()
    right = sum(idioms[n] == idiom for n, idiom in zip(nearest, asked_idioms, strict=True))
    return right / len(asked_idioms)
