"""The IdioLink benchmark: a case computed by hand, and the reference numbers on the real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.benchmarks.suite import Suite
from idiomtune.data.idiolink import Document, Query, Split, load_split
from idiomtune.encoder.encoder import Encoder
from tests.benchmarks import idiolink, in_turn


def make(id_: str, idiom: str, usage: str, gold: bool = False) -> Document:
    return Document.model_validate(fields(id_, idiom, usage, gold))


def ask(id_: str, idiom: str, usage: str, gold: bool = False) -> Query:
    return Query.model_validate(fields(id_, idiom, usage, gold))


def fields(id_: str, idiom: str, usage: str, gold: bool) -> dict[str, Any]:
    sentence = f"{id_} {idiom}"
    return {
        **{"id": id_, "sentence": sentence, "idiom": idiom, "span": idiom},
        **{"subject": "", "usage": usage, "is_gold": gold},
    }


def test_by_hand() -> None:
    """One-hot documents, so that a query's similarities are its own coordinates.

    Idiom "a": d0 literal, d1 idiomatic, d2 simplification, d3 sense; idiom "b": d4 literal.
    """
    documents = [
        make("d0", "a", "literal"),
        make("d1", "a", "idiomatic"),
        make("d2", "a", "simplification"),
        make("d3", "a", "sense"),
        make("d4", "b", "literal"),
    ]
    queries = [ask("q0", "a", "idiomatic"), ask("q1", "a", "literal", gold=True)]
    split = Split("val", tuple(documents), tuple(queries), ())
    benchmark = idiolink([split], "sentence")
    asked = [
        [0.1, 0.9, 0.2, 0.3, 0.8],  # ranks d1 d4 d3 d2 d0: two of the first R = 3 are relevant
        [0.5, 0.6, 0.1, 0.1, 0.1],  # ranks d1 d0: the one relevant is second, R = 1
    ]
    result = benchmark.score(in_turn(torch.cat([torch.eye(5), torch.tensor(asked)])))
    log = torch.tensor([2.0, 3, 4, 5]).log2()
    ndcg_q0 = (1 + 1 / log[2] + 1 / log[3]) / (1 + 1 / log[1] + 1 / log[2])
    ndcg_q1 = 1 / log[1]
    expected = {
        "r_precision": (2 / 3 + 0) / 2,
        "r_precision/literal": 0.0,
        "r_precision/idiomatic": 2 / 3,
        "r_precision/gold": 0.0,
        "r_precision/silver": 2 / 3,
        "ndcg@10": ((ndcg_q0 + ndcg_q1) / 2).item(),
        "ndcg@10/literal": ndcg_q1.item(),
        "ndcg@10/idiomatic": ndcg_q0.item(),
        "ndcg@10/gold": ndcg_q1.item(),
        "ndcg@10/silver": ndcg_q0.item(),
        "recall_at_r/idiomatic": 1.0,
        "recall_at_r/simplification": 0.0,
        "recall_at_r/sense": 1.0,
    }
    assert result.by_key == pytest.approx({f"idiolink/val/sentence/{k}": v for k, v in expected.items()})
    first, second = result.per_query
    assert first["id"] == "q0"
    assert [t["id"] for t in first["top"]] == ["d1", "d4", "d3", "d2", "d0"]
    assert first["recall_at_r"] == {"idiomatic": 1.0, "simplification": 0.0, "sense": 1.0}
    assert second["usage"] == "literal"
    assert "recall_at_r" not in second


def test_the_map_of_an_idiom_by_hand() -> None:
    """Three unit vectors lie in a plane: the map keeps their distances; the literal one is left below."""
    documents = [
        make("d0", "a", "literal"),
        make("d1", "a", "idiomatic"),
        make("d2", "a", "sense"),
        make("d3", "b", "literal"),  # of no query
    ]
    split = Split("val", tuple(documents), (ask("q0", "a", "idiomatic"),), ())
    rows = torch.tensor([[3.0, 0, 0, 0], [0, 1, 0, 0], [0.6, 0, 0.8, 0], [1, 1, 1, 1], [0, 1, 0, 0]])
    (found,) = idiolink([split], "sentence").score(in_turn(rows)).maps
    assert (found["split"], found["idiom"]) == ("val", "a")
    assert [(p["id"], p["usage"]) for p in found["points"]] == [
        *(("d0", "literal"), ("d1", "idiomatic"), ("d2", "sense"))
    ]
    places = torch.tensor([[p["x"], p["y"]] for p in found["points"]])
    expected = torch.cdist(torch.nn.functional.normalize(rows[:3]), torch.nn.functional.normalize(rows[:3]))
    torch.testing.assert_close(torch.cdist(places, places), expected, atol=1e-3, rtol=0)
    assert (places[1:].mean(0) > places[0]).all()
    assert sum(found["explained"]) == pytest.approx(1)


def test_equal_texts_are_kept_apart_by_id() -> None:
    """Two queries with one text and different usages each have their own relevant documents."""
    documents = [make("d0", "a", "literal"), make("d1", "a", "idiomatic")]
    queries = [
        ask("q", "a", usage).model_copy(update={"id": f"q-{usage}"}) for usage in ("literal", "idiomatic")
    ]
    split = Split("val", tuple(documents), tuple(queries), ())
    benchmark = idiolink([split], "sentence")
    embeddings = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    scores = benchmark.score(in_turn(embeddings)).by_key
    assert scores["idiolink/val/sentence/r_precision/literal"] == 1.0
    assert scores["idiolink/val/sentence/r_precision/idiomatic"] == 0.0


def test_keys_are_the_announced_ones(sample_root: Path, tiny: Encoder) -> None:
    modes = ["sentence", "span", "instruction_sentence", "instruction_span"]
    splits = [load_split(sample_root, name) for name in ("val", "val+train")]
    benchmark = idiolink(splits, *modes, bm25_modes=["bm25_sentence", "bm25_span"])
    scores = Suite([benchmark]).run(tiny).scores
    assert set(scores) == set(benchmark.options.score_keys(["val", "val+train"]))
    assert all(0 <= value <= 1 for value in scores.values())
