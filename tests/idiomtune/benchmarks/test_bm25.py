"""BM25 by hand and against rank_bm25."""

import math
from pathlib import Path

import pytest
import torch
from rank_bm25 import BM25Okapi

from idiomtune.benchmarks.idiolink.scoring import BM25
from idiomtune.data.idiolink import load_split

RARE, COMMON = math.log(2.5 / 1.5), math.log(0.5 / 3.5)  # idf of a word in one and in all of three documents


def test_by_hand() -> None:
    for documents, query, expected in (
        (["cat cat dog", "dog dog", "dog"], "cat", [RARE * 2 * 1.9 / (2 + 0.9 * (0.6 + 0.4 * 3 / 2)), 0, 0]),
        (["cat cat dog", "dog dog", "dog"], "cat cat", [2 * RARE * 2 * 1.9 / (2 + 0.9 * 1.2), 0, 0]),
        (["cat cat dog", "dog dog", "dog"], "bird", [0, 0, 0]),
        # An idf below 0 is 0.25 × the mean idf of the vocabulary; one of 0 is not below.
        (["the cat", "the dog", "the bird"], "the", [0.25 * (3 * RARE + COMMON) / 4] * 3),
        (["the cat", "the dog"], "cat", [0, 0]),
        (["cat", "cat"], "cat", [0.25 * math.log(0.5 / 2.5)] * 2),
        # Documents without words count in the mean length.
        (["cat", "?!", "?!"], "cat", [RARE * 1.9 / (1 + 0.9 * (0.6 + 0.4 * 3)), 0, 0]),
    ):
        assert BM25(documents).scores([query])[0].tolist() == pytest.approx(expected)


def test_equal_rank_bm25(sample_root: Path) -> None:
    text = "Don’t PANIC: it's half-baked, isn't it?"
    words = ["don’t", "panic", "it's", "half", "baked", "isn't", "it"]
    assert BM25([text]).words.build_analyzer()(text) == words
    split = load_split(sample_root, "val+train")
    documents = [d.sentence for d in split.documents]
    queries = [q.sentence for q in split.queries] + [q.span for q in split.queries]
    ours = BM25(documents)
    tokenise = ours.words.build_analyzer()
    theirs = BM25Okapi([tokenise(d) for d in documents], k1=0.9, b=0.4, epsilon=0.25)
    expected = torch.tensor([theirs.get_scores(tokenise(q)).tolist() for q in queries], dtype=torch.float64)
    torch.testing.assert_close(ours.scores(queries), expected)
