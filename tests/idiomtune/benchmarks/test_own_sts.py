"""The user's own scored pairs: forms of files, spans, scores by hand, SemEval's as a CSV."""

import math
from pathlib import Path

import pytest
import torch

from idiomtune.benchmarks.user.pairs import Pair, UserPairBenchmark, read_pairs
from idiomtune.requests import EmbeddingRequest, symmetric_query
from tests.benchmarks import in_turn
from tests.benchmarks import with_cosines as embedded
from tests.own_data import write


def scored(tmp_path: Path, text: str) -> list[Pair]:
    return read_pairs(write(tmp_path / "mine.csv", text))


def test_names_of_columns(tmp_path: Path) -> None:
    """Usual ones are understood, with an index as pandas writes it; others are mapped."""
    for header in (",Sentence_A,Sentence_B,relatedness-score", "id,text1,text2,similarity"):
        pair = scored(tmp_path, f"{header}\n0,a,b,1\n1,c,d,0\n")[0]
        assert (pair.first, pair.second, pair.gold) == (symmetric_query("a"), symmetric_query("b"), 1.0)
    mapped = write(tmp_path / "other.csv", "x,y,z,label\na,b,1,no\nc,d,0,no\n")
    assert read_pairs(mapped, columns={"sentence1": "x", "sentence2": "y", "score": "z"})[0].gold == 1.0


def test_scores_by_hand(tmp_path: Path) -> None:
    """Ranks 1 2 3 against 1 3 2: 1 - 6 * 2 / 24 = 0.5; of equal predictions there is no correlation."""
    pairs = scored(tmp_path, "sentence1,sentence2,score,group\na,b,1,x\nc,d,5,x\ne,f,3,y\n")
    benchmark = UserPairBenchmark("own_sts", {"mine": pairs})
    result = benchmark.score(in_turn(embedded([0.2, 0.3, 0.7])))
    pearson = (0.2 * 2 - 0.1 * 2) / math.sqrt(0.14 * 8)
    expected = {"own_sts/mine/spearman": 0.5, "own_sts/mine/pearson": pearson}
    assert result.by_key == pytest.approx(expected, abs=1e-6)
    records = [(r["id"], r["group"], r["gold"]) for r in result.per_query]
    assert records == [("2", "x", 1.0), ("3", "x", 5.0), ("4", "y", 3.0)]
    assert result.notes == []
    assert all(map(math.isnan, benchmark.score(in_turn(embedded([0.5] * 3))).by_key.values()))


def test_spans_are_a_mode_of_their_own(tmp_path: Path) -> None:
    """By their text or their offsets; a sentence without one is embedded whole, and counted."""
    text = (
        "sentence1,sentence2,score,span1,span2_start,span2_end,instruction\n"
        "she saw red,he was angry,1,red,7,12,\n"
        "a b,c d,0,b,,,Meaning?\n"
    )
    pairs = scored(tmp_path, text)
    benchmark = UserPairBenchmark("own_sts", {"mine": pairs})
    first, second, third, fourth = benchmark.requests[4:]
    assert first == symmetric_query("she saw red", (8, 11), "span")
    assert second == EmbeddingRequest("a b", (2, 3), "query", "Meaning?", "span")
    assert third == symmetric_query("he was angry", (7, 12), "span")
    assert fourth == EmbeddingRequest("c d", None, "query", "Meaning?")
    rows = torch.cat([embedded([0.1, 0.9]), embedded([0.9, 0.1])])
    result = benchmark.score(in_turn(rows))
    assert result.by_key["own_sts/mine/spearman"] == pytest.approx(-1)
    assert result.by_key["own_sts/mine/span/spearman"] == pytest.approx(1)
    assert "1 of 4" in result.notes[0]
