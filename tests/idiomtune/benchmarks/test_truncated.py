"""Truncated texts are counted once, beside the scores, and warned of from Python; prompts of pairs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.own.pairs import OwnPairBenchmark, read_pairs
from idiomtune.benchmarks.suite import Suite
from idiomtune.encoder.encoder import Encoder
from idiomtune.requests import Request

LONG = "the quick brown fox jumps over the lazy dog and then comes back for one more jump"


class Texts:
    """A benchmark that only embeds."""

    name = "texts"
    files: Sequence[Path] = ()
    without_gold: Sequence[str] = ()

    def __init__(self, requests: Sequence[Request]) -> None:
        self.announced = list(requests)

    def score(self, embed: Embed) -> Result:
        embed(self.announced)
        return Result()


def load(path: Path, **options: Any) -> Encoder:
    return Encoder.from_pretrained(path, device="cpu", max_length=8, **options)


def notes(encoder: Encoder, benchmark: Any, **how: Any) -> list[str]:
    return [n for n in Suite([benchmark]).run(encoder, **how).notes if "truncated" in n]


def test_the_count_is_beside_the_scores_also_if_embeddings_were_kept(
    tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [
        LONG,
        "one two three four five six",
        "short",
        f"{LONG} again",
        "",
        "one two three four five six   ",
    ]
    requests = [Request(text) for text in texts] + [Request(LONG, (4, 9), pooling="span")]
    for _ in range(2):
        (note,) = notes(load(tiny_path), Texts(requests), keep=True)
        assert note.startswith("2 of 6 texts are truncated to 8 tokens")
        assert "model.max_length" in note
    assert not notes(load(tiny_path), Texts([Request("short")]))
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


@pytest.mark.parametrize("benchmark", ["own_sts", "own_pairs"])
def test_both_sides_of_pairs_are_read_as_queries(tiny_path: Path, tmp_path: Path, benchmark: str) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(
        "sentence1,sentence2,score,label\na b,a c,1,1\na d,e f,0,0\n".replace(
            ",score" if benchmark == "own_pairs" else ",label", ""
        )
        .replace(",1,1", ",1")
        .replace(",0,0", ",0")
    )
    built = OwnPairBenchmark(benchmark, {"mine": read_pairs(file, benchmark)})
    assert {request.role for request in built.announced} == {"query"}
    with_prompts = Encoder.from_pretrained(
        tiny_path, device="cpu", query_prompt="query: ", document_prompt="passage: "
    )
    card = Suite([built]).run(with_prompts)
    assert any("'query: '" in note for note in card.notes)
    plain = Encoder.from_pretrained(tiny_path, device="cpu")
    assert not any("prompt" in note for note in Suite([built]).run(plain).notes)
    prefixed = plain.encode([f"query: {r.text}" for r in built.announced])
    assert torch.equal(with_prompts.encode([r.text for r in built.announced], role="query"), prefixed)
