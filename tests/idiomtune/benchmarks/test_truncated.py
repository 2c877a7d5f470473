"""Truncated texts are counted once, beside the scores, and warned of from Python; prompts of pairs."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune import Encoder
from idiomtune.benchmarks import Benchmark, Embed, Result
from idiomtune.benchmarks.suite import Suite
from idiomtune.benchmarks.user.pairs import UserPairBenchmark, read_pairs
from idiomtune.requests import EmbeddingRequest
from tests.own_data import write

LONG = "the quick brown fox jumps over the lazy dog and then comes back for one more jump"


class Texts(Benchmark):
    name = "texts"

    def __init__(self, requests: Sequence[EmbeddingRequest]) -> None:
        self._requests = requests

    @property
    def requests(self) -> Sequence[EmbeddingRequest]:
        return self._requests

    def score(self, embed: Embed) -> Result:
        embed(self._requests)
        return Result()


def load(path: Path, **options: Any) -> Encoder:
    return Encoder.from_pretrained(path, device="cpu", max_length=8, **options)


def test_the_count_is_beside_the_scores_also_if_embeddings_were_kept(
    tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    six = "one two three four five six"
    texts = [LONG, six, "short", f"{LONG} again", "", f"{six}   "]
    requests = [EmbeddingRequest(text) for text in texts] + [EmbeddingRequest(LONG, (4, 9), pooling="span")]
    for _ in range(2):
        (note,) = (
            n for n in Suite([Texts(requests)]).run(load(tiny_path), keep=True).notes if "truncated" in n
        )
        assert note.startswith("2 of 6 texts are truncated to 8 tokens")
        assert "model.max_length" in note
    assert "truncated" not in caplog.text


def test_encode_and_search_warn_once(tiny_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    encoder = load(tiny_path)
    encoder.encode(["short", "one two three four five six"])
    assert not caplog.records
    encoder.encode([LONG, "short", LONG])
    encoder.encode([LONG])
    encoder.search("short", [LONG, "short"])
    (record,) = caplog.records
    assert record.getMessage().startswith("1 of 2 texts are truncated to 8 tokens")
    encoder.search("short", [f"{LONG} again", "short"])
    assert len(caplog.records) == 2


def test_text_without_blanks_and_signs_at_the_end_count(tiny_path: Path) -> None:
    encoder = load(tiny_path)
    encoder.encode(["冰" * 30, "a b c d e f !!!"])
    assert len(encoder.truncated) == 2


def test_both_sides_of_pairs_are_read_as_queries(tiny_path: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.csv", "sentence1,sentence2,score\na b,a c,1\na d,e f,0\n")
    built = UserPairBenchmark("own_sts", {"mine": read_pairs(file)})
    assert {request.role for request in built.requests} == {"query"}
    with_prompts = load(tiny_path, query_prompt="query: ", document_prompt="passage: ")
    assert any("'query: '" in note for note in Suite([built]).run(with_prompts).notes)
    plain = load(tiny_path)
    assert not any("prompt" in note for note in Suite([built]).run(plain).notes)
    texts = [request.text for request in built.requests]
    prefixed = plain.encode([f"query: {text}" for text in texts])
    assert torch.equal(with_prompts.encode(texts, role="query"), prefixed)
