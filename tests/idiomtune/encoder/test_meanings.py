"""Meanings beside expressions: where they are written, what spans select, and what a saved model reads."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import normalizers

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import GlossaryForm, Meanings
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


def test_a_meaning_stands_behind_its_expression() -> None:
    for text, read in (
        ("She BROKE the ice.", "She BROKE the ice (make people relax)."),
        ("He took him for a ride, too", "He took him for a ride (deceive someone), too"),
        ("a home-run", "a home-run (a great success)"),
        ("kept in the dark", "kept in the dark (tell nothing)"),
        ("home run, home run", "home run (a great success), home run (a great success)"),
        ("the icebreaker", "the icebreaker"),
    ):
        assert Meanings(SENSES).insert(text) == (read, None)


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
        forms: dict[GlossaryForm, str] = {"beside": beside, "in_place": in_place}
        for form, read in forms.items():
            whole, span = Meanings(SENSES, form=form).insert(text, (start, start + len(words)))
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
    # Near the limit the meaning goes first.
    tiny.model.max_seq_length = len(tiny.model.tokenizer(text)["input_ids"]) + 1
    tiny._tokenizer.forget()
    assert torch.equal(tiny.encode([text], ["broke the ice"]), without)


# Of each kind of tokenizer one.
KINDS = [(name, "beside") for name in ("bert", "roberta", "xlm_roberta", "t5", "mistral", "qwen2")]


def family(name: str, folder: Path) -> Encoder:
    return Encoder(tiny_checkpoint(FAMILIES[name], folder), device="cpu", pooling=FAMILIES[name].pooling)


@pytest.mark.parametrize(("name", "form"), [*KINDS, ("roberta", "in_place")])
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
    loaded = Encoder(tmp_path / "saved", device="cpu")
    assert torch.equal(loaded.encode(texts), expected)
    if name == "qwen2":  # whose tokenizer transformers builds anew, without what the file says of it
        assert "does not put meanings" in caplog.text
        return
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    for text in texts:
        read = encoder.model.tokenizer(encoder.meanings.insert(text)[0])
        assert plain.tokenizer(text)["input_ids"] == read["input_ids"]
    assert torch.allclose(torch.tensor(plain.encode(texts)), expected, atol=1e-5)
    loaded.meanings = None
    assert not torch.allclose(loaded.encode(texts)[0], expected[0])


def saved(encoder: Encoder, meanings: Meanings, folder: Path) -> tuple[Meanings, Any]:
    """What a saved model reads of texts, by the encoder and by its tokenizer alone."""
    encoder.meanings = meanings
    encoder.save(folder, overwrite=True)
    loaded = Encoder(folder, device="cpu").meanings
    assert loaded is not None
    return loaded, SentenceTransformer(str(folder), device="cpu").tokenizer


WITHIN_LONGER = {
    **{"take someone for a ride": ["deceive someone"], "ride": ["a trip"], "in the dark": ["not informed"]},
    **{"in the dark about": ["no idea"], "Keep in the Dark about": ["hide from"]},
    "president of the united states": ["a head of state"],
}
WITHIN_A_MEANING = {"tie the knot": ["marry, wed; re-marry (or marry)"], "marry": ["join"]}
NAMES: dict[str, list[str]] = {"home run record": [], "give someone a ride home": [], "by and large": []}


@pytest.mark.parametrize(("name", "form"), [("bert", "in_place"), ("roberta", "beside")])
def test_expressions_within_others_are_read_alike(name: str, form: GlossaryForm, tmp_path: Path) -> None:
    """None is found within a longer one, what fills its placeholder, a meaning, or a name without one."""
    encoder = family(name, tmp_path / "model")
    plain = encoder.model.tokenizer
    unchanged = [
        "He set the home-run records.",
        "They gave the home run king a ride home",
        "By and large, yes",
    ]
    named = Meanings(NAMES | {"home run": ["a success"], "ride": ["trip"]}, form=form)
    assert [named.insert(text)[0] for text in unchanged] == unchanged
    longer = [
        "We took him for a ride, and for a ride again",
        "They take the president of the united states for a ride.",
        "They took the ride for a ride. A ride!",
        "kept in the dark about it, in the dark about it, in the dark",
    ]
    changed = ["A home run, a home run record, and a ride.", "a home run recorder", "a ride home"]
    forms = {"perder o barco": ["perdeu o barco"]}  # of a dictionary
    cases = [
        (Meanings({"perder o barco": ["miss it"]}, form=form, forms=forms), ["Ele perdeu o barco."]),
        (Meanings(WITHIN_LONGER, form=form), longer),
        (Meanings(WITHIN_A_MEANING, form=form), ["They tie the knot, marry."]),
        (named, unchanged + changed),
    ]
    for meanings, texts in cases:
        loaded, tokenizer = saved(encoder, meanings, tmp_path / "saved")
        for text in texts:
            read = meanings.insert(text)[0]
            assert loaded.insert(text)[0] == read
            assert tokenizer(text)["input_ids"] == plain(read)["input_ids"], text
            assert (tokenizer(text)["input_ids"] == plain(text)["input_ids"]) == (text in unchanged)


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
    loaded = Encoder(tmp_path / "saved", device="cpu").model.tokenizer.backend_tokenizer
    assert loaded.normalizer.normalize_str("Stra\u00dfe: home run") == "strasse: home run"


def test_a_tokenizer_that_reads_one_of_many_otherwise_gets_no_rules(
    tiny: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However many are listed before two expressions that overlap."""
    caplog.set_level(logging.INFO)
    senses = {f"word{number} of it": ["any"] for number in range(40)}
    senses |= {"take him for a ride home": ["bring"], "take someone for a ride": ["deceive"]}
    _, tokenizer = saved(tiny, Meanings(senses), tmp_path / "saved")
    assert "does not put meanings" in caplog.text
    text = "word1 of it"
    assert tokenizer(text)["input_ids"] == tiny.model.tokenizer(text)["input_ids"]


CHANGES: dict[str, list[Any]] = {
    "glossary.json": [
        *({"format": 9}, {"form": "x"}, {"senses": {"a": "b"}}, {"senses": {"-": []}}),
        {"gate": {"direction": [], "bias": 0.5}},
    ],
    "idiom_tokens.json": [
        {"format": 9},
        *({"expressions": e} for e in ({"IDbeansID": ["beans"]}, {"IDspillthebeansID": ["…"]})),
    ],
}


def test_a_file_that_is_damaged_or_missing_is_named(tiny: Encoder, tmp_path: Path) -> None:
    """Where it is not claimed, as by other libraries, nothing is missed."""
    tiny.add_idiom_tokens(["spill the beans"], start="random")
    tiny.meanings = Meanings(SENSES)
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
        for content in ([], {}, *(good | change for change in changes)):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
            with pytest.raises(UserError, match=name):
                Encoder(folder, device="cpu")
        (folder / name).write_text(json.dumps(good))
