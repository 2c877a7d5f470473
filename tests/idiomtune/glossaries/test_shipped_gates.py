"""Shipped gates and fitted ones: which model gets which, and how well the shipped one tells usages."""

import json
import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn import metrics  # type: ignore[import-untyped]

import idiomtune as it
from idiomtune import Encoder
from idiomtune.config import EvaluateSettings, ModelSettings, validate
from idiomtune.data.idiolink import load_split
from idiomtune.encoder.facts import weights_digest
from idiomtune.encoder.loading import model_settings
from idiomtune.errors import UserError
from idiomtune.glossaries import usage_gate
from idiomtune.glossaries.choose import choose_meanings, with_gate
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.glossaries.usage_gate import (
    GATES,
    enough_usages,
    exclude_scored_idioms,
    fitted_gate,
    gate_examples,
    shipped_gate,
)
from idiomtune.programs.evaluate import evaluate as score_model
from idiomtune.requests import LabelledUse, LayersRequest
from tests.tiny_models import constant_gate
from tests.tiny_runs import composed

OURS = GlossaryReader({"miss the boat": ["be too late"]})
USED = [
    ("Investors who hesitated in the crisis missed the boat completely.", "miss the boat", True),
    ("They ran to the harbour but missed the boat to the island.", "miss the boat", False),
    ("His joke at dinner broke the ice.", "break the ice", True),
    ("The ship broke the ice in the harbour.", "break the ice", False),
    ("The reform left the minister in hot water with voters.", "in hot water", True),
    ("Soak the towels in hot water for an hour.", "in hot water", False),
    ("He missed the boat.", "miss the boat", True),  # nothing speaks against it
]


@pytest.fixture(scope="session")
def minilm() -> Encoder:
    return Encoder("minilm", glossary=OURS.senses, device="cpu")


def few(unseen: Iterable[str]) -> list[LabelledUse]:
    assert "in the dock" in set(unseen)
    texts = [(f"{n} ships broke the ice", n % 2 == 0) for n in range(8)]
    return [LabelledUse(str(n), "break the ice", text, (8, 21), used) for n, (text, used) in enumerate(texts)]


def settings(**options: object) -> ModelSettings:
    return model_settings("minilm", options)


def test_the_packaged_model_weighs_a_glossary_at_once(minilm: Encoder) -> None:
    meanings, plain = minilm.meanings, minilm.reading(None)
    assert meanings is not None
    assert (meanings.form, meanings.gate) == ("replace", shipped_gate(minilm))
    uses, meaning = [USED[0][0], USED[1][0]], "She was too late for the opportunity."
    late, boat = (minilm.encode(uses) - plain.encode(uses)) @ plain.encode([meaning])[0]
    assert late > 0.1 > 0 > boat  # the idiomatic use moves to the meaning, the literal one away
    for options in ({"glossary_gate": False}, {"glossary_form": "append"}):  # other ways of reading stay
        assert with_gate(plain, OURS, settings(**options), few, is_trained=False) == OURS
    assert with_gate(plain, OURS, settings(), few, is_trained=True) == OURS


@pytest.mark.parametrize(("own", "form"), [(None, "replace"), (OURS, "append")])
def test_a_model_keeps_the_form_that_it_was_trained_to_read(
    own: GlossaryReader | None, form: str, tiny: Encoder
) -> None:
    """With a gate that is fitted to it, too."""
    tiny.meanings = own
    options = settings(glossary=["sample"], glossary_gate=True)
    chosen = choose_meanings(tiny, options, labelled=few)
    assert chosen is not None
    assert chosen.gate is not None
    assert chosen.form == form
    read_as_saved = choose_meanings(tiny, options)  # in training no gate is fitted
    assert read_as_saved is not None
    assert read_as_saved.gate is None


def test_other_models_are_fitted_once(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tiny.meanings = settings(glossary=["sample"], glossary_gate=True), OURS
    assert with_gate(tiny, OURS, settings(glossary=["sample"]), few, is_trained=False) == OURS
    with pytest.raises(UserError, match="glossary_gate=false"):  # a fit needs both usages
        fitted_gate(tiny, lambda unseen: few(unseen)[::2])
    fitted = with_gate(tiny, OURS, asked, few, is_trained=False)
    assert fitted.gate is not None
    assert (fitted.form, fitted.gate.layers, OURS.gate) == ("replace", (1, 2), None)
    monkeypatch.setattr(usage_gate, "fit_gate", None)  # kept in the cache
    assert fitted_gate(tiny, few) == fitted.gate
    assert with_gate(tiny, OURS, asked, few, is_trained=True) == replace(OURS, gate=fitted.gate)
    with pytest.raises(TypeError):  # other sentences, another gate
        fitted_gate(tiny, lambda unseen: few(unseen)[:6])


def test_a_gate_that_knows_what_is_held_out_is_fitted_without_or_warned_of(
    minilm: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    encoder: Any = minilm.reading(minilm.meanings)
    shipped = encoder.meanings.gate
    exclude_scored_idioms(
        encoder, few, lambda: read_glossary([GLOSSARIES / "idiolink.tsv"]).senses
    )  # none of these
    assert encoder.meanings.gate == shipped
    caplog.clear()
    known = shipped.seen[0]
    exclude_scored_idioms(encoder, few, lambda: ["in the dock", known])
    assert encoder.meanings.gate.seen == ("break the ice",)
    assert f"({known})" in caplog.text
    exclude_scored_idioms(encoder, few, lambda: ["break the ice"])
    assert [r.levelname for r in caplog.records if "break the ice" in r.getMessage()] == ["WARNING"]


def test_an_evaluation_tells_what_the_gate_knows_of_held_out_idioms(
    tiny: Encoder, tmp_path: Path, sample_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of those of val, which are scored; not of those that were trained on."""
    gate = constant_gate(tiny.dimension, 0.0)._replace(seen=("pull the plug", "tie the knot"))
    tiny.meanings = replace(OURS, gate=gate)
    tiny.save(tmp_path / "gated")
    given = ["model=pretrained", f"model.path={tmp_path / 'gated'}", f"data.idiolink={sample_root}"]
    config = composed("evaluate", "benchmarks=[idiolink]", "device=cpu", *given)
    score_model(validate(EvaluateSettings, config))
    (warned,) = [record.getMessage() for record in caplog.records if "held out" in record.getMessage()]
    assert "(pull the plug)" in warned


def test_uses_without_context_are_idiomatic_ones_cut_out(tiny: Encoder) -> None:
    usages = [
        LabelledUse("0", "break the ice", "word1 of it broke the ice there", (12, 25), True),
        LabelledUse("1", "break the ice", "Broke the ice there", (0, 13), False),  # no word before it
    ]
    features, labels, _, layers, _, num_bare = gate_examples(tiny, usages)
    assert (num_bare, labels) == (3, (True, False, True, True, True))
    requests = [
        LayersRequest(text, (len(text) - 14, len(text) - 1), with_meanings=False)
        for text in ("Broke the ice.", "It broke the ice.", "Of it broke the ice.")
    ]
    assert torch.allclose(features[2:], tiny.hidden_layers(requests, layers), atol=1e-5)


def test_usage_of_sentences(minilm: Encoder, caplog: pytest.LogCaptureFixture) -> None:
    texts, expressions, labels = zip(*USED, strict=True)
    told = it.usage(minilm, texts, expressions)
    assert [value > 0.5 for value in told] == list(labels)
    by_words = it.usage(minilm, texts[:1], words := "missed the boat")
    assert by_words == pytest.approx(told[:1], abs=0.15)
    start = texts[0].index(words)
    assert minilm.usage(texts[:1], [(start, start + len(words))]) == by_words
    assert it.usage(minilm, [], "miss the boat") == []
    first, none, second = it.usage(minilm, [texts[0], "They took the train.", texts[1]], "miss the boat")
    assert math.isnan(none)
    assert (first, second) == pytest.approx(told[:2], abs=1e-5)
    assert "'miss the boat'" in caplog.text


def test_the_shipped_gate_on_real_queries(minilm: Encoder, real_data: Path) -> None:
    """None of IdioLink's idioms was in what it was fitted to."""
    index = read_glossary([GLOSSARIES / "idiolink.tsv"]).meanings()
    queries = load_split(real_data / "idiolink", "val").queries[:100]
    labels = [query.usage == "idiomatic" for query in queries]
    requests, names = [], []
    for query in queries:
        start, end, name = index.find(query.sentence)[0]
        requests.append(LayersRequest(query.sentence, (start, end), with_meanings=False))
        names.append(name)
    told = minilm.usages(requests, names)
    assert sum((value > 0.5) == label for value, label in zip(told, labels, strict=True)) > 86
    assert metrics.roc_auc_score(labels, told) > 0.95


def test_a_deep_models_gate_takes_one_sentence_of_each_use_whatever_their_order(tiny: Encoder) -> None:
    usages = [*few(["in the dock"]), LabelledUse("x", "home run", "a home run", (2, 10), True)]
    assert enough_usages(tiny, usages) == usages
    tiny.transformer.config.num_hidden_layers = 12  # type: ignore[union-attr]
    drawn = enough_usages(tiny, usages)
    kinds = [("break the ice", False), ("break the ice", True), ("home run", True)]
    assert sorted((usage.phrase, usage.is_idiomatic) for usage in drawn) == kinds
    assert enough_usages(tiny, usages[::-1]) == drawn
    of_user = [LabelledUse("", "", f"{n} ships", None, True) for n in range(3)]
    assert list(enough_usages(tiny, [*usages, *of_user]))[:3] == of_user


def test_a_gate_is_of_its_models_weights_alone(
    minilm: Encoder, tiny: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shipped gate is small, and names the weights that it is for, or the rounded ones."""
    assert {path.stem for path in GATES.glob("*.json")} == {"minilm", "mpnet_base", "me5_small"}
    assert all(path.stat().st_size < 200_000 for path in GATES.glob("*.json"))
    encoder = deepcopy(minilm)
    assert shipped_gate(encoder) is not None
    gate = constant_gate(tiny.dimension, 0.0)
    content = {"parameters": sum(p.numel() for p in tiny.parameters()), "model": "tiny"}
    content |= {"weights": "of four bits", "vectors": weights_digest(tiny, dimensions=1)}
    (tmp_path / "tiny.json").write_text(json.dumps(content | {"gate": gate._asdict()}))
    with torch.no_grad():
        next(encoder.parameters())[0, 0] += 1
        assert shipped_gate(encoder) is None
        monkeypatch.setattr(usage_gate, "GATES", tmp_path)
        next(p for p in tiny.parameters() if p.dim() == 2).mul_(1.01)
        assert shipped_gate(tiny) == gate
        next(p for p in tiny.parameters() if p.dim() == 1).add_(1.0)
        assert shipped_gate(tiny) is None
