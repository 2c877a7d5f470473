"""Meanings beside expressions: where they are written, what spans select, and what a saved model reads."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.tiny_families import FAMILIES, tiny_checkpoint
from train.encoder import saved_expressions
from train.encoder.encoder import Encoder
from train.encoder.forward import add_meanings
from train.encoder.glossary import FILE, GlossaryForm, Meanings, saved_meanings
from train.errors import UserError
from train.requests import Request

SENSES = {
    "break the ice": ["make people relax"],
    "take someone for a ride": ["deceive someone"],
    "in the dark": ["not informed, left in the dark"],
    "keep in the dark": ["tell nothing"],
    "home run": ["a great success", "a hit in baseball"],
}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("She BROKE the ice.", "She BROKE the ice (make people relax)."),
        ("He took him for a ride, too", "He took him for a ride (deceive someone), too"),
        ("a home-run", "a home-run (a great success)"),
        ("kept in the dark", "kept in the dark (tell nothing)"),
        ("in the dark!", "in the dark (not informed, left in the dark)!"),
        ("home run, home run", "home run (a great success), home run (a great success)"),
        ("the icebreaker", "the icebreaker"),
    ],
)  # fmt: skip
def test_a_meaning_stands_behind_its_expression(text: str, read: str) -> None:
    assert Meanings(SENSES).added(text) == (read, None)
    both = Meanings(SENSES, num_senses=2).added("home run")[0]
    assert both == "home run (a great success; a hit in baseball)"


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("We", "We"),
        ("broke", "broke"),
        ("broke the ice", "broke the ice (make people relax)"),
        ("ice", "ice (make people relax)"),
        ("the ice today", "the ice (make people relax) today"),
        ("today", "today"),
        ("by a home run", "by a home run (a great success)"),
    ],
)
def test_a_span_keeps_its_words_and_takes_in_the_meaning_behind_them(words: str, read: str) -> None:
    text = "We broke the ice today by a home run."
    start = text.index(words)
    whole, span = Meanings(SENSES).added(text, (start, start + len(words)))
    assert span is not None
    assert whole[slice(*span)] == read


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("We", "We"),
        ("broke", "make people relax"),
        ("the ice today", "make people relax today"),
        ("today", "today"),
        ("by the home", "by the a great success"),
        ("run.", "a great success."),
    ],
)
def test_a_meaning_in_the_place_of_its_expression(words: str, read: str) -> None:
    """A span that holds a part of the expression holds its whole meaning."""
    text = "We broke the ice today by the home run."
    start = text.index(words)
    whole, span = Meanings(SENSES, form="in_place").added(text, (start, start + len(words)))
    assert whole == "We make people relax today by the a great success."
    assert span is not None
    assert whole[slice(*span)] == read


def test_a_spans_embedding_is_that_of_the_text_written_out(tiny: Encoder) -> None:
    text = "They broke the ice."
    by_hand = tiny.encode(["They broke the ice (make people relax)."], ["broke the ice (make people relax)"])
    without = tiny.encode([text], ["broke the ice"])
    tiny.meanings = Meanings(SENSES)
    assert torch.equal(tiny.encode([text], ["broke the ice"]), by_hand)
    assert torch.equal(tiny([Request(text, (5, 18), pooling="span", with_meanings=False)]), without)
    assert not torch.allclose(by_hand, without)


def test_near_the_limit_the_meaning_goes_first(tiny_path: Path) -> None:
    words = "They broke the ice again and again and again"
    length = len(SentenceTransformer(str(tiny_path)).tokenizer(words)["input_ids"])
    encoder = Encoder.from_pretrained(tiny_path, device="cpu", max_length=length + 1)
    bare = encoder.encode([words])
    encoder.meanings = Meanings(SENSES)
    assert torch.equal(encoder.encode([words]), bare)


# Of each kind of tokenizer one; the other families need no less than these, and take seconds.
QUICK = ("bert", "roberta", "xlm_roberta", "llama")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "beside") for name in QUICK),
        *(pytest.param(name, "beside", marks=pytest.mark.slow) for name in FAMILIES if name not in QUICK),
        *(("bert", "in_place"), ("roberta", "in_place")),
    ],
)
def test_any_library_reads_a_saved_model_alike(
    name: str, form: GlossaryForm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = tiny_checkpoint(FAMILIES[name], tmp_path / "model")
    encoder = Encoder.from_pretrained(model, device="cpu", pooling=FAMILIES[name].pooling)
    encoder.meanings = Meanings(SENSES, form=form)
    texts = [
        "She BROKE the ice, and broke the ice again.",
        "kept in the dark", "in the dark", "He takes the voters for a ride!", "a home-run", "nothing",
    ]  # fmt: skip
    expected = encoder.encode(texts)
    encoder.save(tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert torch.equal(loaded.encode(texts), expected)
    if name == "qwen2":  # whose tokenizer transformers builds anew, without what the file says of it
        assert "does not put meanings into texts by itself" in caplog.text
        return
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    for text in texts:
        read = encoder.model.tokenizer(encoder.meanings.added(text)[0])
        assert plain.tokenizer(text)["input_ids"] == read["input_ids"]
    assert torch.allclose(torch.tensor(plain.encode(texts)), expected, atol=1e-5)
    loaded.meanings = None
    assert not torch.allclose(loaded.encode(texts)[0], expected[0])


def saved_tokenizer(
    encoder: Encoder, senses: dict[str, list[str]], folder: Path, form: GlossaryForm = "beside"
) -> Any:
    encoder.meanings = Meanings(senses, form=form)
    encoder.save(folder)
    return SentenceTransformer(str(folder), device="cpu").tokenizer


@pytest.mark.parametrize("form", ["beside", "in_place"])
def test_within_a_longer_expression_none_is_found(tiny: Encoder, tmp_path: Path, form: GlossaryForm) -> None:
    """Wherever it stands there, and in what fills a placeholder too."""
    senses = {
        "take someone for a ride": ["deceive someone"],
        "ride": ["a trip"],
        "in the dark": ["not informed"],
        "in the dark about": ["no idea"],
        "Keep in the Dark about": ["hide from"],
        "president of the united states": ["a head of state"],
    }
    tokenizer = saved_tokenizer(tiny, senses, tmp_path / "saved", form)
    plain = tiny.model.tokenizer
    assert tiny.meanings is not None
    for text in (
        "We took him for a ride, and for a ride again",
        "They take the president of the united states for a ride.",
        "They took the ride for a ride. A ride!",
        "kept in the dark about it, in the dark about it, in the dark",
    ):
        expected = plain(tiny.meanings.added(text)[0])["input_ids"]
        assert tokenizer(text)["input_ids"] == expected, text


@pytest.mark.parametrize("form", ["beside", "in_place"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_within_a_meaning_no_expression_is_found(name: str, form: GlossaryForm, tmp_path: Path) -> None:
    """Nor is one before punctuation or a hyphen."""
    senses = {
        "tie the knot": ["marry, wed; re-marry (or marry)"],
        "home run": ["one's ride-home"],
        "marry": ["join"],
        "ride home": ["trip"],
    }
    encoder = Encoder.from_pretrained(
        tiny_checkpoint(FAMILIES[name], tmp_path / "model"), device="cpu", pooling=FAMILIES[name].pooling
    )
    tokenizer = saved_tokenizer(encoder, senses, tmp_path / "saved", form)
    assert encoder.meanings is not None
    text = "They tie the knot, marry, and home-run, ride home."
    read = encoder.meanings.added(text)[0]
    assert tokenizer(text)["input_ids"] == encoder.model.tokenizer(read)["input_ids"]
    assert tokenizer(text)["input_ids"] != encoder.model.tokenizer(text)["input_ids"]


def test_an_expression_whose_meaning_holds_another_is_tried(
    tiny: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many are listed before it: without marks, its rule would not read texts as the encoder does."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(saved_expressions, "_WORD", re.compile(r"\S+"))
    senses = {f"word{number} of it": ["any"] for number in range(40)}
    senses |= {"tie the knot": ["marry, wed"], "marry": ["join"]}
    saved_tokenizer(tiny, senses, tmp_path / "saved", "in_place")
    assert "does not put meanings into texts by itself" in caplog.text


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("form", ["beside", "in_place"])
def test_what_is_left_out_stays_as_it_is(name: str, form: GlossaryForm, tmp_path: Path) -> None:
    """With what stands within it; a saved model and its tokenizer read it alike."""
    model = tiny_checkpoint(FAMILIES[name], tmp_path / "model")
    encoder = Encoder.from_pretrained(model, device="cpu", pooling=FAMILIES[name].pooling)
    longer = ["home run record", "give someone a ride home", "by and large"]
    encoder.meanings = meanings = Meanings(
        {longer[0]: ["most of them"], "home run": ["a success"], longer[1]: ["drive"], "ride": ["trip"]}
        | {longer[2]: ["mostly"]},
        form=form,
    )
    encoder.meanings = meanings = meanings.without(longer)
    assert meanings.about["left_as_they_are"] == 3
    kept = ["He set the home-run records.", "They gave the home run king a ride home", "By and large, yes"]
    changed = ["A home run, a home run record, and a ride.", "a home run recorder", "a ride home"]
    assert [meanings.added(text)[0] for text in kept] == kept
    assert not any(meanings.in_text(text) for text in kept)
    encoder.save(tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu").meanings
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu").tokenizer
    assert loaded is not None
    for text in kept + changed:
        read = meanings.added(text)[0]
        assert loaded.added(text)[0] == read
        assert plain(text)["input_ids"] == encoder.model.tokenizer(read)["input_ids"], text


def test_a_tokenizer_that_reads_one_of_many_otherwise_gets_no_rules(
    tiny: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    senses = {f"word{number} of it": ["any"] for number in range(40)}
    senses |= {"take him for a ride home": ["bring"], "take someone for a ride": ["deceive"]}
    tokenizer = saved_tokenizer(tiny, senses, tmp_path / "saved")
    assert "does not put meanings into texts by itself" in caplog.text
    text = "word1 of it"
    assert tokenizer(text)["input_ids"] == tiny.model.tokenizer(text)["input_ids"]


GOOD = {"format": 2, "form": "beside", "num_senses": 1, "weight": 0.0, "about": {}, "senses": {"a": ["b"]}}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        *(
            GOOD | {field: value}
            for field, value in (
                ("format", 9),
                ("num_senses", 0),
                ("senses", {"a": []}),
                ("left_out", ["-"]),
                ("gate", {"direction": [], "bias": 0.5}),
            )
        ),
    ],
)
def test_a_damaged_file_is_named(knowing: Path, content: Any) -> None:
    (knowing / FILE).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=FILE):
        Encoder.from_pretrained(knowing, device="cpu")


@pytest.fixture
def knowing(tiny: Encoder, tmp_path: Path) -> Path:
    """A saved model with meanings."""
    tiny.meanings = Meanings(SENSES)
    tiny.save(tmp_path / "knowing")
    return tmp_path / "knowing"


def test_a_checkpoint_of_an_older_version_has_its_meanings_beside() -> None:
    content = {"format": 1, "num_senses": 1, "about": {}, "senses": {"a b": ["c"]}}
    assert saved_meanings(content, 32).added("a b!")[0] == "a b (c)!"


def test_a_meaning_counts_in_its_sentence_as_far_as_it_fits(tiny: Encoder, tmp_path: Path) -> None:
    """By the formula; other sentences, spans, and texts read without meanings stay as they were."""
    texts = ["They broke the ice.", "A home run, and they broke the ice.", "nothing"]
    span = Request(texts[0], (5, 18), pooling="span")
    bare = Request(texts[0], with_meanings=False)
    tiny.meanings = Meanings(SENSES)
    before, others = tiny.encode(texts), tiny([span, bare])
    ice, run = torch.nn.functional.normalize(tiny.encode(["make people relax", "a great success"]), dim=1)
    tiny.meanings = Meanings(SENSES, weight=0.5)
    after = tiny.encode(texts)
    for row, meaning in ((0, ice), (1, torch.nn.functional.normalize(ice + run, dim=0))):
        fit = torch.cosine_similarity(before[row], meaning, dim=0).clamp(min=0)
        length = before[row].norm()
        expected = before[row] + 0.5 * fit * length * meaning
        assert torch.allclose(after[row], expected / expected.norm() * length, atol=1e-6)
    assert torch.equal(after[2], before[2])
    assert torch.allclose(tiny([span, bare]), others, atol=1e-6)
    tiny.save(tmp_path / "saved")
    assert torch.allclose(Encoder.from_pretrained(tmp_path / "saved", device="cpu").encode(texts), after)


def test_a_literal_sentence_gets_nothing_of_a_meaning_that_does_not_fit() -> None:
    sentences, meanings = torch.tensor([[0.6, 0.8], [-2.0, 1.0]]), torch.tensor([[3.0, 0.0]])
    fitting, other = add_meanings(sentences, meanings, [[0], [0]], 0.5)
    assert torch.allclose(fitting, torch.tensor([0.9, 0.8]) / math.sqrt(0.9**2 + 0.8**2))
    assert torch.allclose(other, sentences[1])


def test_meanings_that_are_added_count_in_a_forward_batch(tiny: Encoder) -> None:
    """Rows of their own, as long as they are: padding included, a batch keeps within its budget."""
    long = "a result that everybody had hoped for and nobody had thought to be possible at all"
    tiny.meanings = Meanings({"home run": [long]}, weight=0.5)
    tiny.tokens_per_forward = 64
    requests = [Request(f"He hit home run number {number}.") for number in range(12)]
    batches = tiny.forward_batches(requests)
    assert sum(len(batch.sentences) for batch in batches) == 12
    for batch in batches:
        assert len(batch.texts) * max(map(len, batch.texts)) <= 64
