"""Meanings beside expressions: where they are written, what spans select, and what a saved model reads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from idiomtune import Encoder
from idiomtune.errors import UserError
from idiomtune.glossaries.meanings import GlossaryForm, GlossaryReader
from idiomtune.requests import EmbeddingRequest

SENSES = {
    "break the ice": ["make people relax"],
    "take someone for a ride": ["deceive someone"],
    "in the dark": ["not informed, left in the dark"],
    "keep in the dark": ["tell nothing"],
    "home run": ["a great success", "a hit in baseball"],
}


def test_a_meaning_stands_behind_its_expression() -> None:
    for text, read in (
        ("She BROKE the ice.", "She BROKE the ice (make people relax)."),
        ("He took him for a ride, too", "He took him for a ride (deceive someone), too"),
        ("a home-run", "a home-run (a great success)"),
        ("kept in the dark", "kept in the dark (tell nothing)"),
        ("home run, home run", "home run (a great success), home run (a great success)"),
        ("the icebreaker", "the icebreaker"),
    ):
        assert GlossaryReader(SENSES).insert(text) == (read, None)


def test_a_span_keeps_its_words_and_takes_in_meanings() -> None:
    """A meaning behind the span's end; in place, the whole meaning of an expression it holds a part of."""
    for words, beside, in_place in (
        ("broke", "broke", "make people relax"),
        ("broke the ice", "broke the ice (make people relax)", "make people relax"),
        ("ice", "ice (make people relax)", "make people relax"),
        ("the ice today", "the ice (make people relax) today", "make people relax today"),
        ("today", "today", "today"),
        ("by a home", "by a home", "by a a great success"),
    ):
        text = "We broke the ice today by a home run."
        start = text.index(words)
        forms: dict[GlossaryForm, str] = {"append": beside, "replace": in_place}
        for form, read in forms.items():
            whole, span = GlossaryReader(SENSES, form=form).insert(text, (start, start + len(words)))
            assert span is not None
            assert whole[slice(*span)] == read
        assert whole == "We make people relax today by a a great success."


def test_a_spans_embedding_is_that_of_the_text_written_out(tiny: Encoder) -> None:
    text = "They broke the ice."
    by_hand = tiny.encode(["They broke the ice (make people relax)."], ["broke the ice (make people relax)"])
    without = tiny.encode([text], ["broke the ice"])
    tiny.meanings = GlossaryReader(SENSES)
    assert torch.equal(tiny.encode([text], ["broke the ice"]), by_hand)
    assert torch.equal(tiny([EmbeddingRequest(text, (5, 18), pooling="span", with_meanings=False)]), without)
    assert not torch.allclose(by_hand, without)
    # Near the limit the meaning goes first.
    tiny.model.max_seq_length = len(tiny.model.tokenizer(text)["input_ids"]) + 1
    tiny._tokenizer.forget()
    assert torch.equal(tiny.encode([text], ["broke the ice"]), without)


@pytest.mark.parametrize("form", ["append", "replace"])
def test_a_saved_model_reads_the_same_meanings_by_the_encoder_alone(
    tiny: Encoder, form: GlossaryForm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    texts = ["She BROKE the ice, and broke the ice again.", "kept in the dark", "a home-run", "nothing"]
    bare = tiny.encode(texts)
    tiny.meanings = GlossaryReader(SENSES, form=form)
    expected = tiny.encode(texts)
    assert not torch.allclose(bare[0], expected[0])
    tiny.save(tmp_path / "saved")
    assert "read by Encoder alone" in caplog.text
    assert torch.equal(Encoder(tmp_path / "saved", device="cpu").encode(texts), expected)
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert torch.allclose(torch.tensor(plain.encode(texts)), bare, atol=1e-5)


def test_no_expression_is_found_within_a_longer_one_or_a_name_without_a_meaning() -> None:
    names: dict[str, list[str]] = {"home run record": [], "give someone a ride home": [], "by and large": []}
    named = GlossaryReader(names | {"home run": ["a success"], "ride": ["trip"]})
    for text in ("He set the home-run records.", "They gave the home run king a ride home", "By and large"):
        assert named.insert(text)[0] == text
    assert named.insert("a home run recorder")[0] == "a home run (a success) recorder"
    longer = {"take someone for a ride": ["deceive"], "ride": ["trip"], "in the dark": ["uninformed"]}
    longer |= {"keep in the dark about": ["hide from"]}
    longer |= {"tie the knot": ["marry"], "marry": ["join"], "perder o barco": ["miss it"]}
    forms = {"perder o barco": ["perdeu o barco"]}  # of a dictionary
    reader = GlossaryReader(longer, form="replace", forms=forms)
    for text, read in (
        ("We took him for a ride, a ride", "We deceive, a trip"),
        ("kept in the dark about it, in the dark", "hide from it, uninformed"),
        ("tie the knot, marry", "marry, join"),
        ("Ele perdeu o barco.", "Ele miss it."),
    ):
        assert reader.insert(text)[0] == read


CHANGES: dict[str, list[Any]] = {
    "glossary.json": [{"format": 9}, {"senses": {"a": "b"}}, {"gate": {"direction": [], "bias": 0.5}}],
    "idiom_tokens.json": [{"format": 9}, {"expressions": {"IDbeansID": ["beans"]}}],
}


def test_a_file_that_is_damaged_or_missing_is_named(tiny: Encoder, tmp_path: Path) -> None:
    """Where it is not claimed, as by other libraries, nothing is missed."""
    tiny.add_idiom_tokens(["spill the beans"], start="random")
    tiny.meanings = GlossaryReader(SENSES)
    folder, text = tmp_path / "model", ["They broke the ice, and spilled the beans."]
    tiny.save(folder)
    for name in CHANGES:
        (folder / name).rename(tmp_path / name)
        with pytest.raises(UserError, match=name):
            Encoder(folder, device="cpu")
        (tmp_path / name).rename(folder / name)
    config = folder / "config_sentence_transformers.json"
    before, facts = Encoder(folder, device="cpu").encode(text), json.loads(config.read_text())
    del facts["idiomtune_files"]
    config.write_text(json.dumps(facts))
    assert torch.equal(Encoder(folder, device="cpu").encode(text), before)
    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path / "plain"))
    Encoder(tmp_path / "plain", device="cpu")
    for name, changes in CHANGES.items():
        good = json.loads((folder / name).read_text())
        for content in ([], *(good | change for change in changes)):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
            with pytest.raises(UserError, match=name):
                Encoder(folder, device="cpu")
        (folder / name).write_text(json.dumps(good))
