"""The IdioLink benchmark: a case computed by hand, and its maps."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from idiomtune.data.idiolink import Document, Query, Split
from idiomtune.requests import EmbeddingRequest
from tests.benchmarks import idiolink, in_turn


def fields(id_: str, idiom: str, usage: str, changes: dict[str, Any]) -> dict[str, Any]:
    about = {"id": id_, "idiom": idiom, "usage": usage, "sentence": f"{id_} {idiom}", "span": idiom}
    return {**about, "subject": "", "is_gold": False, **changes}


def make(id_: str, idiom: str, usage: str, **changes: Any) -> Document:
    return Document.model_validate(fields(id_, idiom, usage, changes))


def ask(id_: str, idiom: str, usage: str, **changes: Any) -> Query:
    return Query.model_validate(fields(id_, idiom, usage, changes))


def val(documents: Sequence[Document], *queries: Query) -> Split:
    return Split("val", tuple(documents), queries, ())


def scored(split: Split, similarities: Sequence[Sequence[float]]) -> Any:
    """By one-hot documents, so that a query's similarities are its own coordinates."""
    rows = torch.cat([torch.eye(len(split.documents)), torch.tensor(similarities)])
    return idiolink([split], "sentence").score(in_turn(rows))


USAGES = ("literal", "idiomatic", "simplification", "sense")


def test_by_hand() -> None:
    """Idiom "a" has a document of each usage; "b", d4, a literal one."""
    documents = [make(f"d{n}", "a", usage) for n, usage in enumerate(USAGES)] + [make("d4", "b", "literal")]
    split = val(documents, ask("q0", "a", "idiomatic"), ask("q1", "a", "literal", is_gold=True))
    result = scored(
        split,
        [
            [0.1, 0.9, 0.2, 0.3, 0.8],  # ranks d1 d4 d3 d2 d0: two of the first R = 3 are relevant
            [0.5, 0.6, 0.1, 0.1, 0.1],  # ranks d1 d0: the one relevant is second, R = 1
        ],
    )
    log = torch.tensor([2.0, 3, 4, 5]).log2()
    ndcg_q0 = float((1 + 1 / log[2] + 1 / log[3]) / (1 + 1 / log[1] + 1 / log[2]))
    ndcg_q1 = float(1 / log[1])
    expected = {
        **{"r_precision": 1 / 3, "ndcg@10": (ndcg_q0 + ndcg_q1) / 2},
        **{f"r_precision/{slice_}": 2 / 3 for slice_ in ("idiomatic", "silver")},
        **{f"r_precision/{slice_}": 0.0 for slice_ in ("literal", "gold")},
        **{f"ndcg@10/{slice_}": ndcg_q0 for slice_ in ("idiomatic", "silver")},
        **{f"ndcg@10/{slice_}": ndcg_q1 for slice_ in ("literal", "gold")},
        **{"recall_at_r/idiomatic": 1.0, "recall_at_r/simplification": 0.0, "recall_at_r/sense": 1.0},
    }
    assert result.by_key == pytest.approx({f"idiolink/val/sentence/{k}": v for k, v in expected.items()})
    first, second = result.per_query
    assert first["id"] == "q0"
    assert [t["id"] for t in first["top"]] == ["d1", "d4", "d3", "d2", "d0"]
    assert first["recall_at_r"] == {"idiomatic": 1.0, "simplification": 0.0, "sense": 1.0}
    assert second["usage"] == "literal"
    assert "recall_at_r" not in second


def test_the_first_ten_are_scored_and_kept() -> None:
    """The one relevant document of the query comes eleventh of twelve."""
    documents = [make("d0", "a", "literal"), *(make(f"d{n}", "b", "literal") for n in range(1, 12))]
    similarities = [0.15, *(n / 10 for n in range(1, 12))]
    result = scored(val(documents, ask("q", "a", "literal")), [similarities])
    assert result.by_key["idiolink/val/sentence/ndcg@10"] == 0
    assert [document["id"] for document in result.per_query[0]["top"]] == [f"d{n}" for n in range(11, 1, -1)]


def test_recall_is_of_queries_whose_idiom_has_such_documents() -> None:
    """Only a has a sense document, which comes last of its two relevant ones: first R = 2."""
    documents = [make("d0", "a", "idiomatic"), make("d1", "a", "sense"), make("d2", "b", "idiomatic")]
    split = val(documents, ask("qa", "a", "idiomatic"), ask("qb", "b", "idiomatic"))
    result = scored(split, [[0.9, 0.5, 0.1], [0.9, 0.5, 0.1]])
    found = {u: result.by_key.get(f"idiolink/val/sentence/recall_at_r/{u}") for u in ("idiomatic", "sense")}
    assert found == {"idiomatic": 0.5, "sense": 1.0}
    recalls = [record["recall_at_r"] for record in result.per_query]
    assert recalls == [{"idiomatic": 1.0, "sense": 1.0}, {"idiomatic": 0.0}]


def test_bm25_searches_by_the_sentence_or_by_the_span() -> None:
    """The sentence's other words are those of another document."""
    texts = {"red fish": "red fish", "cat": "cat dog bird", "sky": "sky", "sea": "sea"}
    documents = [make(idiom, idiom, "literal", sentence=text) for idiom, text in texts.items()]
    asked = ask("q", "red fish", "literal", sentence="cat dog bird red fish")
    benchmark = idiolink([val(documents, asked)], bm25_modes=["bm25_sentence", "bm25_span"])
    scores = benchmark.score(in_turn(torch.eye(4))).by_key
    assert scores["idiolink/val/bm25_sentence/r_precision"] == 0
    assert scores["idiolink/val/bm25_span/r_precision"] == 1


def test_what_is_announced_is_what_is_asked() -> None:
    """Announced texts are embedded at once; any other text would be embedded on its own."""
    split = val([make(f"d {usage}", "a", usage) for usage in USAGES], ask("q", "a", "idiomatic"))
    benchmark = idiolink([split], "sentence", "span")
    asked: set[EmbeddingRequest] = set()

    def embed(requests: Sequence[EmbeddingRequest]) -> torch.Tensor:
        asked.update(requests)
        return torch.ones(len(requests), 2)

    benchmark.score(embed)
    assert set(benchmark.requests) == asked


def test_equal_texts_are_kept_apart_by_id() -> None:
    """Two queries with one text and different usages each have their own relevant documents."""
    documents = [make("d0", "a", "literal"), make("d1", "a", "idiomatic")]
    queries = [ask(usage, "a", usage, sentence="q a") for usage in ("literal", "idiomatic")]
    scores = scored(val(documents, *queries), [[1.0, 0.0], [1.0, 0.0]]).by_key
    assert scores["idiolink/val/sentence/r_precision/literal"] == 1.0
    assert scores["idiolink/val/sentence/r_precision/idiomatic"] == 0.0
