"""Why sense documents are not found: where they rank, what outranks them, what the model knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from idiomloss import cosine_similarity
from idiomloss.similarity import unit_vectors
from train.benchmarks import Embed, Score
from train.benchmarks.idiolink import USAGES
from train.data.idiolink import Document, Split, document_request
from train.requests import Request


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
