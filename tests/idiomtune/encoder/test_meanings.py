"""Meanings beside expressions: where they are written, what spans select, and what a saved model reads."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import normalizers

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import add_meanings
from idiomtune.encoder.glossary import FILE, GlossaryForm, Meanings, saved_meanings
from idiomtune.encoder.saved_expressions import _charsmap
from idiomtune.errors import UserError
from idiomtune.requests import Request
from tests.tiny_families import FAMILIES, tiny_checkpoint

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
)
def test_a_meaning_stands_behind_its_expression(text: str, read: str) -> None:
    assert Meanings(SENSES).added(text) == (read, None)
    both = Meanings(SENSES, num_senses=2).added("home run")[0]
    assert both == "home run (a great success; a hit in baseball)"


@pytest.mark.parametrize(
    ("words", "beside", "in_place"),
    [
        ("We", "We", "We"),
        ("broke", "broke", "make people relax"),
        ("broke the ice", "broke the ice (make people relax)", "make people relax"),
        ("ice", "ice (make people relax)", "make people relax"),
        ("the ice today", "the ice (make people relax) today", "make people relax today"),
        ("today", "today", "today"),
        ("by a home", "by a home", "by a a great success"),
        ("by a home run.", "by a home run (a great success).", "by a a great success."),
    ],
)
def test_a_span_keeps_its_words_and_takes_in_meanings(words: str, beside: str, in_place: str) -> None:
    """A meaning behind the span's end; in place, the whole meaning of an expression it holds a part of."""
    text = "We broke the ice today by a home run."
    start = text.index(words)
    forms: dict[GlossaryForm, str] = {"beside": beside, "in_place": in_place}
    for form, read in forms.items():
        whole, span = Meanings(SENSES, form=form).added(text, (start, start + len(words)))
        assert span is not None
        assert whole[slice(*span)] == read
    assert whole == "We make people relax today by a a great success."


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
SLOW = [pytest.param(name, "beside", marks=pytest.mark.slow) for name in FAMILIES if name not in QUICK]
IN_PLACE = [("bert", "in_place"), ("roberta", "in_place")]


def family(name: str, folder: Path) -> Encoder:
    checkpoint = tiny_checkpoint(FAMILIES[name], folder)
    return Encoder.from_pretrained(checkpoint, device="cpu", pooling=FAMILIES[name].pooling)


@pytest.mark.parametrize(("name", "form"), [*((name, "beside") for name in QUICK), *SLOW, *IN_PLACE])
def test_any_library_reads_a_saved_model_alike(
    name: str, form: GlossaryForm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    encoder = family(name, tmp_path / "model")
    encoder.meanings = Meanings(SENSES, form=form)
    texts = ["She BROKE the ice, and broke the ice again.", "kept in the dark", "in the dark"]
    texts += ["He takes the voters for a ride!", "a home-run", "nothing"]
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


def saved_tokenizer(encoder: Encoder, meanings: Meanings, folder: Path) -> Any:
    encoder.meanings = meanings
    encoder.save(folder)
    return SentenceTransformer(str(folder), device="cpu").tokenizer


WITHIN_LONGER = {
    "take someone for a ride": ["deceive someone"],
    "ride": ["a trip"],
    "in the dark": ["not informed"],
    "in the dark about": ["no idea"],
    "Keep in the Dark about": ["hide from"],
    "president of the united states": ["a head of state"],
}
WITHIN_A_MEANING = {
    "tie the knot": ["marry, wed; re-marry (or marry)"],
    "home run": ["one's ride-home"],
    "marry": ["join"],
    "ride home": ["trip"],
}
LEFT_OUT = ["home run record", "give someone a ride home", "by and large"]
LEAVING_OUT = {name: ["any"] for name in LEFT_OUT} | {"home run": ["a success"], "ride": ["trip"]}


@pytest.mark.parametrize("form", ["beside", "in_place"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_expressions_within_others_are_read_alike(name: str, form: GlossaryForm, tmp_path: Path) -> None:
    """None is found within a longer one, what fills its placeholder, a meaning, or what is left out."""
    encoder = family(name, tmp_path / "model")
    plain = encoder.model.tokenizer
    unchanged = [
        "He set the home-run records.",
        "They gave the home run king a ride home",
        "By and large, yes",
    ]
    left_out = Meanings(LEAVING_OUT, form=form).without(LEFT_OUT)
    assert left_out.about["left_as_they_are"] == 3
    assert [left_out.added(text)[0] for text in unchanged] == unchanged
    assert not any(left_out.in_text(text) for text in unchanged)
    longer = [
        "We took him for a ride, and for a ride again",
        "They take the president of the united states for a ride.",
        "They took the ride for a ride. A ride!",
        "kept in the dark about it, in the dark about it, in the dark",
    ]
    changed = ["A home run, a home run record, and a ride.", "a home run recorder", "a ride home"]
    cases = [
        (Meanings(WITHIN_LONGER, form=form), longer),
        (Meanings(WITHIN_A_MEANING, form=form), ["They tie the knot, marry, and home-run, ride home."]),
        (left_out, unchanged + changed),
    ]
    for number, (meanings, texts) in enumerate(cases):
        saved = tmp_path / f"saved{number}"
        tokenizer = saved_tokenizer(encoder, meanings, saved)
        loaded = Encoder.from_pretrained(saved, device="cpu").meanings
        assert loaded is not None
        for text in texts:
            read = meanings.added(text)[0]
            assert loaded.added(text)[0] == read
            assert tokenizer(text)["input_ids"] == plain(read)["input_ids"], text
            assert (tokenizer(text)["input_ids"] == plain(text)["input_ids"]) == (text in unchanged)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_forms_of_a_dictionary_are_read_alike(name: str, tmp_path: Path) -> None:
    """After saving too, by the encoder and by the tokenizer alone."""
    encoder = family(name, tmp_path / "model")
    meanings = Meanings({"perder o barco": ["miss it"]}, forms={"perder o barco": ["perdeu o barco"]})
    tokenizer = saved_tokenizer(encoder, meanings, tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu").meanings
    assert loaded is not None
    text, read = "Ele perdeu o barco.", "Ele perdeu o barco (miss it)."
    assert loaded.added(text)[0] == read
    assert tokenizer(text)["input_ids"] == encoder.model.tokenizer(read)["input_ids"]


def test_a_normaliser_of_its_own_stays(tmp_path: Path) -> None:
    """Some families have a table of characters as well, as our rules do."""
    encoder = family("bert", tmp_path / "model")
    backend = encoder.model.tokenizer.backend_tokenizer
    table = normalizers.Precompiled(_charsmap({"\u00df": "ss", "\u0153": "oe"}))
    own = normalizers.Sequence([table, normalizers.Lowercase()])
    backend.normalizer = normalizers.Sequence([own, normalizers.StripAccents()])
    assert backend.normalizer.normalize_str("Stra\u00dfe, c\u0153ur, sse") == "strasse, coeur, sse"
    encoder.meanings = Meanings(SENSES)
    encoder.save(tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu").model.tokenizer.backend_tokenizer
    assert loaded.normalizer.normalize_str("Stra\u00dfe: home run") == "strasse: home run"


MANY = {f"word{number} of it": ["any"] for number in range(40)}
UNLIKE = {"take him for a ride home": ["bring"], "take someone for a ride": ["deceive"]}


@pytest.mark.parametrize("form", ["beside", "in_place"])
def test_a_tokenizer_that_reads_one_of_many_otherwise_gets_no_rules(
    tiny: Encoder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    form: GlossaryForm,
) -> None:
    """However many are listed before two expressions that overlap."""
    caplog.set_level(logging.INFO)
    tokenizer = saved_tokenizer(tiny, Meanings(MANY | UNLIKE, form=form), tmp_path / "saved")
    assert "does not put meanings into texts by itself" in caplog.text
    text = "word1 of it"
    assert tokenizer(text)["input_ids"] == tiny.model.tokenizer(text)["input_ids"]


GOOD = {"format": 2, "form": "beside", "num_senses": 1, "weight": 0.0, "about": {}, "senses": {"a": ["b"]}}


DAMAGES: list[Any] = [
    *([], {}, GOOD | {"format": 9}, GOOD | {"num_senses": 0}, GOOD | {"senses": {"a": "b"}}),
    *(GOOD | {"left_out": ["-"]}, GOOD | {"gate": {"direction": [], "bias": 0.5}}),
]


def test_a_damaged_file_is_named(tiny: Encoder, tmp_path: Path) -> None:
    tiny.meanings = Meanings(SENSES)
    tiny.save(tmp_path / "knowing")
    for content in DAMAGES:
        (tmp_path / "knowing" / FILE).write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(UserError, match=FILE):
            Encoder.from_pretrained(tmp_path / "knowing", device="cpu")


def test_a_checkpoint_of_an_older_version_has_its_meanings_beside() -> None:
    content = {"format": 1, "num_senses": 1, "about": {}, "senses": {"a b": ["c"]}}
    assert saved_meanings(content, 32, 32).added("a b!")[0] == "a b (c)!"


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
