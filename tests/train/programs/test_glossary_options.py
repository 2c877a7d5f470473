"""What the options of a glossary make a model read, and which of them are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiny_runs import composed
from train.config import EvaluateSettings, LearnSettings, check
from train.encoder.device import place
from train.encoder.encoder import Encoder
from train.encoder.glossary import UsageGate
from train.errors import UserError
from train.factory import build_encoder
from train.programs.knowledge import check_has_gate, gate_usages

PAIRS = {"break the ice": "make people relax; begin", "wedding day": "wedding day; of two", "odd one": "sole"}


@pytest.fixture
def glossary(tmp_path: Path) -> Path:
    path = tmp_path / "mine.tsv"
    path.write_text("expression\tmeaning\n" + "".join(f"{n}\t{m}\n" for n, m in PAIRS.items()))
    return path


@pytest.fixture
def trained(tiny_path: Path, tmp_path: Path, glossary: Path) -> Path:
    """A checkpoint with meanings: brief, without those that their own words say."""
    encoder = built(tiny_path, f"glossary={glossary}", "glossary_brief=true", "glossary_max_similarity=0.999")
    assert encoder.meanings is not None
    assert "wedding day" not in encoder.meanings.senses
    assert encoder.meanings.senses["break the ice"] == ["make people relax"]
    as_trained = encoder.meanings.senses | {"odd one": ["as it was trained"]}  # unlike the file
    encoder.meanings = encoder.meanings.override(senses=as_trained)
    encoder.save(tmp_path / "trained")
    return tmp_path / "trained"


def built(path: Path, *options: str, expressions: tuple[str, ...] = ()) -> Encoder:
    overrides = ["model=pretrained", f"model.path={path}", "device=cpu", *(f"model.{o}" for o in options)]
    settings = check(EvaluateSettings, composed("evaluate", *overrides))
    return build_encoder(settings.model, place("cpu", "fp32"), expressions=expressions)


def senses(encoder: Encoder) -> dict[str, list[str]]:
    assert encoder.meanings is not None
    return encoder.meanings.senses


@pytest.mark.parametrize(
    "options", [[], ["glossary_brief=true"], ["glossary_max_similarity=0.999"], ["glossary_weight=0.5"]]
)
def test_a_checkpoint_keeps_its_meanings_of_the_same_file(
    trained: Path, glossary: Path, tmp_path: Path, options: list[str]
) -> None:
    moved = glossary.rename(tmp_path / "moved.tsv")
    encoder = built(trained, f"glossary={moved}", *options)
    assert senses(encoder) == senses(Encoder.from_pretrained(trained, device="cpu"))
    assert encoder.meanings is not None
    assert encoder.meanings.weight == 0.5 * (options == ["glossary_weight=0.5"])


def test_options_that_ask_for_other_meanings_are_followed(trained: Path, glossary: Path) -> None:
    whole = senses(built(trained, f"glossary={glossary}", "glossary_brief=false"))
    assert whole["break the ice"] == [PAIRS["break the ice"]]
    everything = senses(built(trained, f"glossary={glossary}", "glossary_max_similarity=1"))
    assert everything == {name: [meaning.split(";")[0]] for name, meaning in PAIRS.items()}


def test_another_glossary_is_read_as_the_checkpoint_was_trained_to(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("expression\tmeaning\ntie the knot\tget married; bind\nred tape\tred tape\n")
    assert senses(built(trained, f"glossary={other}")) == {"tie the knot": ["get married"]}


@pytest.mark.parametrize("option", ["glossary_brief=false", "glossary_max_similarity=0.5"])
def test_other_meanings_need_the_file(trained: Path, option: str) -> None:
    with pytest.raises(UserError) as told:
        built(trained, option)
    assert f"model.{option}" in str(told.value)
    assert "model.glossary=" in str(told.value)


@pytest.mark.parametrize(
    "option",
    [
        "glossary_brief=true",
        "glossary_max_similarity=0.5",
        "glossary_form=in_place",
        "glossary_senses=2",
        "glossary_weight=0.5",
        "glossary_gate=true",
        "glossary_dropout=0.25",
    ],
)
def test_options_without_any_glossary_are_refused(tiny_path: Path, option: str) -> None:
    with pytest.raises(UserError) as told:
        built(tiny_path, option)
    assert f"model.{option}" in str(told.value)
    assert "model.glossary=" in str(told.value)


def test_a_gate_stays_with_its_model(trained: Path, glossary: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(trained, device="cpu")
    assert encoder.meanings is not None
    encoder.meanings = encoder.meanings.override(gate=UsageGate([0.5] * encoder.dimension, 1.0))
    encoder.save(tmp_path / "gated")
    other = tmp_path / "other.tsv"
    other.write_text("expression\tmeaning\ntie the knot\tget married\n")
    for options in ([], [f"glossary={other}"], [f"glossary={glossary}", "glossary_gate=true"]):
        kept = built(tmp_path / "gated", *options).meanings
        assert kept is not None
        assert kept.gate == encoder.meanings.gate
    without = built(tmp_path / "gated", "glossary_gate=false", "glossary_weight=0.5").meanings
    assert without is not None
    assert without.gate is None
    for clash in ("glossary_form=in_place", "glossary_weight=0.5"):
        with pytest.raises(UserError, match=clash.partition("=")[0]):
            built(tmp_path / "gated", clash)


def test_a_gate_needs_sentences_of_both_usages(trained: Path) -> None:
    model = check(EvaluateSettings, composed("evaluate", "model=minilm")).model
    wanted = model.model_copy(update={"glossary_gate": True})
    both: Any = SimpleNamespace(usages=[("They broke the ice.", True), ("Ships broke the ice.", False)])
    one: Any = SimpleNamespace(usages=both.usages[:1])
    assert gate_usages(wanted, both) == both.usages
    assert gate_usages(model, one) == []
    for objective in (one, SimpleNamespace()):
        with pytest.raises(UserError, match="glossary_gate"):
            gate_usages(wanted, objective)
    with pytest.raises(UserError, match="glossary_gate"):
        check_has_gate(wanted, Encoder.from_pretrained(trained, device="cpu"))


def test_a_meaning_may_not_hide_a_token(tiny_path: Path, glossary: Path) -> None:
    in_place = [f"glossary={glossary}", "glossary_form=in_place"]
    with pytest.raises(UserError) as told:
        built(tiny_path, *in_place, expressions=("break the ice", "miss the boat"))
    assert "break the ice" in str(told.value)
    assert "miss the boat" not in str(told.value)
    built(tiny_path, *in_place, expressions=("miss the boat",))
    built(tiny_path, *in_place[:1], expressions=("break the ice",))


def test_what_is_not_learnt_is_refused(glossary: Path) -> None:
    def checked(option: str) -> LearnSettings:
        settings: LearnSettings = check(
            LearnSettings, composed("learn", f"glossary={glossary}", f"model.{option}")
        )
        return settings

    for option in ("glossary_weight=0.5", "glossary_gate=true", "glossary_dropout=0.25"):
        with pytest.raises(UserError, match=option.partition("=")[0]):
            checked(option)
    assert checked("glossary_brief=true").model.glossary_brief is True
    assert checked("glossary_senses=2").model.glossary_brief is False
