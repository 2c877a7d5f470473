"""Several vectors a document: the pieces by hand, the comparison against loops, the modes end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from idiomtune.benchmarks.idiolink import scoring as multivector
from idiomtune.benchmarks.idiolink.scoring import mean_of_best, windows, words_within
from idiomtune.benchmarks.suite import Suite
from idiomtune.data.idiolink import load_split
from idiomtune.encoder.encoder import Encoder
from tests.benchmarks import idiolink


def test_windows_of_words() -> None:
    text = "Don't well-known, “ice” it’s."
    assert [text[s:e] for s, e in windows(text, 1)] == ["Don't", "well-known", "ice", "it’s"]
    assert [text[s:e] for s, e in windows(text, 3)] == ["Don't well-known, “ice", "well-known, “ice” it’s"]
    assert windows("two words", 5) == [(0, 9)]
    assert windows("?!", 2) == [(0, 2)]


def test_words_within_a_span() -> None:
    text = "They broke the ice."
    assert [text[s:e] for s, e in words_within(text, (5, 18))] == ["broke", "the", "ice"]
    assert [text[s:e] for s, e in words_within(text, (7, 12))] == ["broke", "the"], "overlap counts"
    assert words_within("a ?! b", (2, 4)) == [(2, 4)]
    assert words_within("a?b", (0, 2)) == [(0, 1)], "the next word begins where the span ends"
    assert words_within("a?b", (1, 3)) == [(2, 3)], "the word before ends where the span begins"


@pytest.mark.parametrize("at_once", [1, 40, 10**6])
def test_mean_of_best_equals_a_loop(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multivector, "_MAX_SIMILARITIES", at_once)
    g = torch.Generator().manual_seed(0)
    queries, documents = torch.randn(7, 5, generator=g), torch.randn(11, 5, generator=g)
    query_of, document_of = [0, 0, 1, 2, 2, 2, 3], [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 3]
    got = mean_of_best(queries, query_of, documents, document_of)
    assert got.shape == (4, 4)
    cosine = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=-1)
    for q in range(4):
        for d in range(4):
            best = [
                max(cosine[u, v].item() for v in range(11) if document_of[v] == d)
                for u in range(7)
                if query_of[u] == q
            ]
            assert got[q, d].item() == pytest.approx(sum(best) / len(best), abs=1e-6)


def test_a_query_asks_by_its_span_or_by_each_of_its_words(sample_root: Path) -> None:
    split = load_split(sample_root, "val")
    query = replace(split, queries=split.queries[:1])
    start, end = split.queries[0].span_offsets
    words = words_within(split.queries[0].sentence, (start, end))
    assert len(words) > 1
    for mode, spans in (("span_window", [(start, end)]), ("span_late", words)):
        announced = idiolink([query], multivector_modes=[mode]).announced
        assert [request.span for request in announced if request.role == "query"] == spans


def test_modes_embed_each_sentence_once_and_count_their_vectors(sample_root: Path, tiny: Encoder) -> None:
    split = load_split(sample_root, "val")
    plain = idiolink([split], "span")
    several = idiolink([split], "span", multivector_modes=["span_window", "span_late"], window_words=2)
    before, after = Suite([plain]).run(tiny), Suite([several]).run(tiny)
    assert after.num_texts == before.num_texts
    assert {k: v for k, v in after.scores.items() if "/span/" in k} == before.scores
    assert set(after.scores) <= set(several.options.score_keys(["val"]))
    num_words = sum(len(windows(d.sentence, 1)) for d in split.documents) / len(split.documents)
    assert after.scores["idiolink/val/span_late/vectors_per_document"] == num_words
    assert after.scores["idiolink/val/span_window/vectors_per_document"] == num_words - 1
