"""What the options of a glossary make a model read, and which of them are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from idiomtune import Encoder
from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.encoder.device import choose_device
from idiomtune.errors import UserError
from idiomtune.glossaries.build import build_encoder
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.training.prepare import gate_usages
from tests.own_data import write, write_lines
from tests.programs import refused
from tests.tiny_models import constant_gate
from tests.tiny_runs import composed

PAIRS = {"break the ice": "make people relax; begin", "odd one": "sole"}


@pytest.fixture
def glossary(tmp_path: Path) -> Path:
    rows = "".join(f"{name}\t{meaning}\n" for name, meaning in PAIRS.items())
    return write(tmp_path / "mine.tsv", f"expression\tmeaning\n{rows}")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    rows = "tie the knot\tget married; bind\nred tape\tred tape\n"
    return write(tmp_path / "other.tsv", f"expression\tmeaning\n{rows}")


@pytest.fixture
def trained(tiny_path: Path, tmp_path: Path, glossary: Path) -> Path:
    """A checkpoint with meanings."""
    encoder = built(tiny_path, f"glossary={glossary}")
    meanings = meanings_of(encoder)
    assert meanings.senses["break the ice"] == [PAIRS["break the ice"]]
    as_trained = meanings.senses | {"odd one": ["as it was trained"]}  # unlike the file
    encoder.meanings = meanings.override(senses=as_trained)
    encoder.save(tmp_path / "trained")
    return tmp_path / "trained"


def built(path: Path, *options: str, expressions: tuple[str, ...] = ()) -> Encoder:
    overrides = ["model=pretrained", f"model.path={path}", "device=cpu", *(f"model.{o}" for o in options)]
    settings = validate(EvaluateSettings, composed("evaluate", *overrides))
    return build_encoder(settings.model, choose_device("cpu", "fp32"), expressions=expressions)


def meanings_of(encoder: Encoder) -> GlossaryReader:
    assert encoder.meanings is not None
    return encoder.meanings


def senses(path: Path, *options: str) -> dict[str, list[str]]:
    return meanings_of(built(path, *options)).senses


@pytest.mark.parametrize("options", [[], ["glossary_dropout=0.5"]])
def test_a_checkpoint_has_its_meanings_of_the_same_file(
    trained: Path, glossary: Path, tmp_path: Path, options: list[str]
) -> None:
    moved = glossary.rename(tmp_path / "moved.tsv")
    meanings = meanings_of(built(trained, f"glossary={moved}", *options))
    assert meanings.senses == meanings_of(Encoder.from_pretrained(trained, device="cpu")).senses
    assert meanings.dropout == 0.5 * (options == ["glossary_dropout=0.5"])


def test_options_that_ask_for_other_meanings_are_followed(trained: Path, other: Path) -> None:
    """Of another glossary as the checkpoint was trained to read one."""
    assert senses(trained, f"glossary={other}")["tie the knot"] == ["get married; bind"]


def test_options_without_a_glossary_are_refused(tiny_path: Path) -> None:
    for option in ("glossary_form=replace", "glossary_gate=true", "glossary_dropout=0.25"):
        refused(lambda option=option: built(tiny_path, option), f"model.{option}", "model.glossary=")  # type: ignore[misc]


def test_a_gate_stays_with_its_model(trained: Path, glossary: Path, other: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(trained, device="cpu")
    gate = constant_gate(encoder.dimension, 1.0)
    encoder.meanings = meanings_of(encoder).override(gate=gate)
    encoder.save(tmp_path / "gated")
    for options in ([], [f"glossary={other}"], [f"glossary={glossary}", "glossary_gate=true"]):
        assert meanings_of(built(tmp_path / "gated", *options)).gate == gate
    assert meanings_of(built(tmp_path / "gated", "glossary_gate=false")).gate is None
    refused(lambda: built(tmp_path / "gated", "glossary_form=replace"), "glossary_form")


def test_a_gate_needs_sentences_of_both_usages() -> None:
    options = ["+experiment=idiolink_glossary", "data=sample"]
    wanted, without, in_place = (
        validate(TrainSettings, composed("train", *options, *more))
        for more in ([], ["model.glossary_gate=false"], ["model.glossary_form=replace"])
    )
    both: Any = SimpleNamespace(usages=[("They broke the ice.", True), ("Ships broke the ice.", False)])
    one: Any = SimpleNamespace(usages=both.usages[:1])
    usages = gate_usages(wanted, both)
    assert [(usage.sentence, usage.is_idiomatic) for usage in usages] == both.usages
    assert gate_usages(without, one) == []
    with pytest.raises(UserError, match="glossary_gate"):
        gate_usages(wanted, one)
    with pytest.raises(UserError, match=r"model\.glossary_form=replace: in training"):
        gate_usages(in_place, both)


def test_the_gate_of_a_run_is_fitted_to_magpie_and_our_own_sentences_too(tmp_path: Path) -> None:
    use = {"idiom": "tie the knot", "offsets": [[2, 15]]}
    lines = [use | {"label": label, "sentence": f"{n} tied the knot"} for label in "il" for n in range(3)]
    write_lines(tmp_path / "magpie.jsonl", lines)
    options = ["+experiment=idiolink_glossary", f"data.magpie={tmp_path}"]
    settings = validate(TrainSettings, composed("train", *options))
    usages = gate_usages(settings, cast(Any, SimpleNamespace(usages=())))
    assert [usage.phrase for usage in usages[:6]] == ["tie the knot"] * 6
    assert len({usage.phrase for usage in usages[6:]}) > 400
