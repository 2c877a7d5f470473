"""The user's own scored and labelled pairs: forms of files, spans, scores by hand, SemEval's as a CSV."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch import Tensor

from tests.benchmarks import in_turn
from tests.own_data import write, write_lines
from train.benchmarks.own import own_key
from train.benchmarks.own.pair_files import PairFile, read_labelled_pairs, read_scored_pairs
from train.benchmarks.own.pairs import OwnPairBenchmark, correlations, separation
from train.errors import UserError
from train.requests import Request


def embedded(cosines: list[float]) -> Tensor:
    """Rows of all first sentences, then all second ones; the second are not of length 1."""
    first = torch.eye(2)[[0] * len(cosines)]
    second = torch.tensor([[c, math.sqrt(1 - c * c)] for c in cosines]) * 3
    return torch.cat([first, second])


def scored(tmp_path: Path, text: str, name: str = "mine.csv") -> PairFile:
    return read_scored_pairs("mine", write(tmp_path / name, text), {})


@pytest.mark.parametrize(
    "header",
    ["sentence1,sentence2,score", "Sentence_A,Sentence_B,relatedness-score", "text1,text2,similarity"],
)
def test_usual_names_of_columns_are_understood(tmp_path: Path, header: str) -> None:
    (pair,) = scored(tmp_path, f"{header}\na,b,1\nc,d,0\n").pairs[:1]
    assert (pair.first.text, pair.second.text, pair.gold, pair.id) == ("a", "b", 1.0, "2")
    mapped = write(tmp_path / "other.csv", "x,y,z,label\na,b,1,no\nc,d,0,no\n")
    columns = {"sentence1": "x", "sentence2": "y", "score": "z"}
    assert read_scored_pairs("other", mapped, columns).pairs[0].gold == 1.0
    indexed = scored(tmp_path, f",{header}\n0,a,b,1\n1,c,d,0\n", "indexed.csv")  # as pandas writes it
    assert indexed.pairs[0].first.span is None


def test_every_kind_of_file_gives_the_same(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "sentence1": "a cat", "sentence2": "b", "score": 1.5, "span1": "cat", "group": "g"},
        {"id": "2", "sentence1": "c", "sentence2": "d", "score": 0.0, "span1": None, "group": "g"},
    ]
    lines = write_lines(tmp_path / "mine.jsonl", rows)
    text = "\n".join(",".join(str(v or "") for v in row.values()) for row in rows)
    tables = [
        write(tmp_path / "mine.csv", f"{','.join(rows[0])}\n{text}".replace("d,,", "d,0,")),
        write(
            tmp_path / "mine.tsv", f"{','.join(rows[0])}\n{text}".replace("d,,", "d,0,").replace(",", "\t")
        ),
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "mine.parquet")
    expected = read_scored_pairs("mine", lines).pairs
    assert expected[0].first.span == (2, 5)
    for path in (*tables, tmp_path / "mine.parquet"):
        assert read_scored_pairs("mine", path).pairs == expected


def test_scores_by_hand(tmp_path: Path) -> None:
    """Ranks 1 2 3 against 1 3 2: 1 - 6 * 2 / 24 = 0.5."""
    file = scored(tmp_path, "sentence1,sentence2,score,group\na,b,1,x\nc,d,5,x\ne,f,3,y\n")
    result = OwnPairBenchmark("own_sts", [file], correlations).score(in_turn(embedded([0.2, 0.3, 0.7])))
    assert result.by_key.keys() == {"own_sts/mine/spearman", "own_sts/mine/pearson"}
    assert result.by_key["own_sts/mine/spearman"] == pytest.approx(0.5)
    x, y = [-0.2, -0.1, 0.3], [-2.0, 2.0, 0.0]
    expected = sum(a * b for a, b in zip(x, y, strict=True)) / math.sqrt(0.14 * 8)
    assert result.by_key["own_sts/mine/pearson"] == pytest.approx(expected, abs=1e-6)
    assert [(r["id"], r["group"], r["gold"]) for r in result.per_query] == [
        ("2", "x", 1.0),
        ("3", "x", 5.0),
        ("4", "y", 3.0),
    ]
    assert result.notes == []


def test_all_predictions_equal_is_no_correlation(tmp_path: Path) -> None:
    file = scored(tmp_path, "sentence1,sentence2,score\na,b,1\nc,d,5\n")
    result = OwnPairBenchmark("own_sts", [file], correlations).score(in_turn(embedded([0.5, 0.5])))
    assert all(math.isnan(value) for value in result.by_key.values())


def test_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "text1,text2,is_duplicate\na,b,1\nc,d,0\ne,f,true\ng,h,No\n")
    file = read_labelled_pairs("mine", path)
    assert [pair.gold for pair in file.pairs] == [1, 0, 1, 0]
    benchmark = OwnPairBenchmark("own_pairs", [file], separation, "accuracy_threshold")
    result = benchmark.score(in_turn(embedded([0.9, 0.7, 0.5, 0.1])))
    assert result.by_key["own_pairs/mine/average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert result.by_key["own_pairs/mine/f1_threshold"] == pytest.approx(0.3)
    right = [record["is_right"] for record in result.per_query]
    assert sum(right) / 4 == result.by_key["own_pairs/mine/accuracy"] == 0.75
    signed = write(tmp_path / "signed.csv", "text1,text2,label\na,b,1\nc,d,-1\n")
    assert [pair.gold for pair in read_labelled_pairs("signed", signed).pairs] == [1, 0]


def test_spans_are_a_mode_of_their_own(tmp_path: Path) -> None:
    """By their text or their offsets; a sentence without one is embedded whole, and counted."""
    text = (
        "sentence1,sentence2,score,span1,span2_start,span2_end,instruction\n"
        "she saw red,he was angry,1,red,7,12,\n"
        "a b,c d,0,b,,,Meaning?\n"
    )
    file = scored(tmp_path, text)
    assert file.modes == ["sentence", "span"]
    benchmark = OwnPairBenchmark("own_sts", [file], correlations)
    first, second, third, fourth = benchmark.announced[4:]
    assert first == Request("she saw red", (8, 11), pooling="span")
    assert second == Request("a b", (2, 3), "query", "Meaning?", "span")
    assert third == Request("he was angry", (7, 12), pooling="span")
    assert fourth == Request("c d", None, "query", "Meaning?")
    rows = torch.cat([embedded([0.1, 0.9]), embedded([0.9, 0.1])])
    result = benchmark.score(in_turn(rows))
    assert result.by_key[own_key("own_sts", "mine", "sentence", "spearman")] == pytest.approx(-1)
    assert result.by_key["own_sts/mine/span/spearman"] == pytest.approx(1)
    assert "1 of 4" in result.notes[0]


def test_a_tie_of_columns_is_the_users_to_break(tmp_path: Path) -> None:
    text = "sentence1,sentence2,score,label\na,b,1,0\nc,d,0,1\n"
    with pytest.raises(UserError, match=r"'score' and 'label'.*benchmark\.own_sts\.columns"):
        scored(tmp_path, text)
    path = tmp_path / "mine.csv"
    assert read_scored_pairs("mine", path, {"score": "label"}).pairs[0].gold == 0
