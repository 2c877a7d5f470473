"""The diagnosis of sense documents: ranks and shares by hand, knowledge on vectors made for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from idiomtune.benchmarks.idiolink.scoring import knowledge_scores, rank_scores
from idiomtune.data.idiolink import Document, Query, Split
from tests.benchmarks import by_text, in_turn


def fields(id_: str, idiom: str, usage: str) -> dict[str, Any]:
    words = {"id": id_, "sentence": f"{id_} {idiom}", "idiom": idiom, "span": idiom}
    return {**words, "subject": "", "usage": usage, "is_gold": False}


def small_split() -> Split:
    kinds = ["literal", "idiomatic", "simplification", "sense", "sense", "sense"]
    documents = [
        Document.model_validate(fields(f"{i}{n}", i, usage)) for i in "ab" for n, usage in enumerate(kinds)
    ]
    queries = [Query.model_validate(fields(f"q{i}", i, "idiomatic")) for i in "ab"]
    queries.append(Query.model_validate(fields("literal", "a", "literal")))
    return Split("val", tuple(documents), tuple(queries), ())


def test_ranks_and_what_outranks_by_hand() -> None:
    """Corpus positions 0–5 are idiom a's, 6–11 b's: literal, idiomatic, simplification, three senses."""
    ranking = torch.tensor(
        [
            [1, 0, 3, 6, 4, 2, 5, 7, 8, 9, 10, 11],  # a: senses at 3, 5, 7; before the 5th: 1 0 3 6
            [9, 10, 7, 11, 8, 6, 0, 1, 2, 3, 4, 5],  # b: senses at 1, 2, 4; before the 2nd: 9
            list(range(12)),  # a literal query does not count
        ]
    )
    got = {f"{s.metric}/{s.slice}": s.value for s in rank_scores(small_split(), "span", ranking)}
    assert {k: v for k, v in got.items() if k.startswith("median_rank") or v} == pytest.approx(
        {
            "median_rank/literal": (2 + 6) / 2,
            "median_rank/idiomatic": (1 + 3) / 2,
            "median_rank/simplification": (6 + 5) / 2,
            "median_rank/sense": (5 + 2) / 2,
            "above_sense/own_literal": 1 / 5,
            "above_sense/own_idiomatic": 1 / 5,
            "above_sense/own_sense": 2 / 5,
            "above_sense/other_literal": 1 / 5,
        }
    )


def test_knowledge_by_hand() -> None:
    """a's query span lies at a's simplification, b's at a's too; the idioms alone are right for both."""
    a, b = [1.0, 0.0], [0.0, 1.0]
    vectors = [a, a]  # query spans of a, b
    vectors += [a, b]  # simplification spans
    vectors += [b, a, b, a, a, a]  # sense spans: of a more b than a, of b all a
    vectors += [a, b]  # the simplification spans again, now asked about
    vectors += [[0.9, 0.1], b]  # idiomatic spans
    vectors += [a, b]  # idioms alone
    # a's documents: literal, idiomatic, simplification, three senses; then b's
    vectors += [a, a, b, a, b, [0.8, 0.2], a, b, b, a, b, b]
    vectors += [a, b]  # simplifications alone
    scores = knowledge_scores(small_split(), in_turn(vectors))
    assert {str(score): score.value for score in scores} == pytest.approx(
        {
            "idiolink/val/knowledge/chance": 0.5,
            "idiolink/val/knowledge/span_to_simplification": 0.5,
            "idiolink/val/knowledge/idiom_to_simplification": 1.0,
            "idiolink/val/knowledge/simplification_to_sense": 0.0,
            # First R = 5 without itself: a's idiomatic span 0 3 6 9 5, two of three senses; b's 2 4 8 10 11.
            "idiolink/val/knowledge/senses_found_by_idiom": 2 / 3,
            # a's simplification 0 1 3 6 9, one of three; b's 2 4 7 10 11, two.
            "idiolink/val/knowledge/senses_found_by_simplification": (1 / 3 + 2 / 3) / 2,
        }
    )


def test_what_an_idiom_lacks_does_not_count() -> None:
    """b has no sense document, c no document at all; d is of a literal query, which does not count."""
    kinds = {
        **{"bl": ("b", "literal"), "dl": ("d", "literal")},
        **{"al": ("a", "literal"), "as": ("a", "sense")},
    }
    documents = [Document.model_validate(fields(id_, *kind)) for id_, kind in kinds.items()]
    queries = [Query.model_validate(fields(f"q{i}", i, "idiomatic")) for i in "abc"]
    queries.append(Query.model_validate(fields("qd", "d", "literal")))
    ranking = torch.tensor([[0, 2, 3, 1], [1, 2, 0, 3], [1, 2, 3, 0], [1, 2, 3, 0]])
    split = Split("val", tuple(documents), tuple(queries), ())
    got = {f"{s.metric}/{s.slice}": s.value for s in rank_scores(split, "span", ranking)}
    assert {key: value for key, value in got.items() if value} == pytest.approx(
        {
            "median_rank/literal": (2 + 3) / 2,
            "median_rank/sense": 3,
            # Before a's one sense document, at 3: b's literal one and a's own.
            "above_sense/own_literal": 1 / 2,
            "above_sense/other_literal": 1 / 2,
        }
    )


def test_simplifications_are_compared_with_senses_alone() -> None:
    """Of both idioms, simplifications and senses lie together; the literal documents are swapped."""
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    usages = ["literal", "simplification", "sense"]
    documents = tuple(Document.model_validate(fields(f"{u} {i}", i, u)) for i in "ab" for u in usages)
    queries = tuple(Query.model_validate(fields(f"q{i}", i, "idiomatic")) for i in "ab")
    vectors = {"a": a, "b": b, "qa a": a, "qb b": b, "literal a a": b, "literal b b": a}
    vectors |= {f"{usage} {i} {i}": a if i == "a" else b for usage in usages[1:] for i in "ab"}
    scores = {
        str(score): score.value
        for score in knowledge_scores(Split("val", documents, queries, ()), by_text(vectors))
    }
    assert scores["idiolink/val/knowledge/simplification_to_sense"] == 1

    without = Split("val", tuple(d for d in documents if d.usage != "sense"), queries, ())
    keys = {str(score) for score in knowledge_scores(without, by_text(vectors))}
    assert "idiolink/val/knowledge/simplification_to_sense" not in keys
    assert "idiolink/val/knowledge/span_to_simplification" in keys
