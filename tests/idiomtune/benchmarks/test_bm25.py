"""BM25 by hand and against rank_bm25."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from rank_bm25 import BM25Okapi

from idiomtune.benchmarks.idiolink.scoring import BM25
from idiomtune.data.idiolink import load_split


def test_tokens() -> None:
    text = "Don’t PANIC: it's half-baked, isn't it?"
    assert BM25([text]).words.build_analyzer()(text) == [
        "don’t", "panic", "it's", "half", "baked", "isn't", "it",
    ]  # fmt: skip


def test_by_hand() -> None:
    """'cat' stands in one of three documents, of mean length 2."""
    scores = BM25(["cat cat dog", "dog dog", "dog"]).scores(["cat", "cat cat", "bird"])
    idf = math.log((3 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 * 1.9 / (2 + 0.9 * (1 - 0.4 + 0.4 * 3 / 2))
    assert scores[0].tolist() == pytest.approx([expected, 0, 0])
    assert scores[1].tolist() == pytest.approx([2 * expected, 0, 0])
    assert scores[2].tolist() == [0, 0, 0]


def test_equal_rank_bm25(sample_root: Path) -> None:
    split = load_split(sample_root, "val+train")
    documents = [d.sentence for d in split.documents]
    queries = [q.sentence for q in split.queries] + [q.span for q in split.queries]
    ours = BM25(documents)
    tokenise = ours.words.build_analyzer()
    theirs = BM25Okapi([tokenise(d) for d in documents], k1=0.9, b=0.4, epsilon=0.25)
    expected = torch.tensor([theirs.get_scores(tokenise(q)).tolist() for q in queries], dtype=torch.float64)
    torch.testing.assert_close(ours.scores(queries), expected)


def test_words_in_most_documents_get_the_floor() -> None:
    """ln((3 − 3 + 0.5) / 3.5) < 0, so `the` gets 0.25 × the mean idf of the four words."""
    scores = BM25(["the cat", "the dog", "the bird"]).scores(["the"])
    rare, common = math.log(2.5 / 1.5), math.log(0.5 / 3.5)
    floor = 0.25 * (3 * rare + common) / 4
    assert scores[0].tolist() == pytest.approx([floor * 1.9 / (1 + 0.9)] * 3)


def test_a_word_in_half_of_the_documents_counts_nothing() -> None:
    """Its idf is ln(1.5 / 1.5) = 0, which is not negative, so it does not get the floor."""
    assert BM25(["the cat", "the dog"]).scores(["cat"]).tolist() == [[0, 0]]


def test_small_corpora() -> None:
    """The mean of idf over a vocabulary of one word is its own; of lengths, with documents without words."""
    floor = 0.25 * math.log(0.5 / 2.5)
    assert BM25(["cat", "cat"]).scores(["cat"])[0].tolist() == pytest.approx([floor * 1.9 / (1 + 0.9)] * 2)
    idf = math.log((3 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 1.9 / (1 + 0.9 * (1 - 0.4 + 0.4 * 1 / (1 / 3)))
    assert BM25(["cat", "?!", "?!"]).scores(["cat"])[0].tolist() == pytest.approx([expected, 0, 0])
