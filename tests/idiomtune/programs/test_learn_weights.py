"""`idiomtune learn into=weights`: what weights learn, what stays, what an interruption costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from idiomtune.config import LearnSettings, check
from idiomtune.encoder import device
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import read_glossary
from idiomtune.errors import Interrupted, UserError
from idiomtune.programs import learn as recipe
from idiomtune.programs.learn import LearningState, as_they_are, find_carriers, learn, targets
from tests.tiny_models import constant_gate
from tests.tiny_runs import composed

WITH = [
    "They tied the knot in May.",
    "We tie the knot next year.",
    "She ties the knot with two ropes.",
    "After ten years they tied the knot.",
]
LITERAL = [
    "He tied the knot in the rope.",
    "Tie the knot around the pole.",
    "The sailor ties the knot.",
]
IDIOMATIC = ["They will tie the knot in church.", "My sister tied the knot at last."]
WITHOUT = ["The ice melts slowly.", "A cat slept on the mat.", "He reads the paper.", "It rained all day."]
Learn = Callable[..., Path]


@pytest.fixture
def glossary(tmp_path: Path) -> Path:
    path = tmp_path / "mine.tsv"
    path.write_text("expression\tmeaning\ntie the knot\tget married\n", encoding="utf-8")
    return path


@pytest.fixture
def taught(tmp_path: Path, glossary: Path, tiny_path: Path) -> Learn:
    (tmp_path / "corpus.txt").write_text("\n".join([*WITH, *WITHOUT]), encoding="utf-8")

    def run(output: str, **options: Any) -> Path:
        given: dict[str, Any] = {"model": tiny_path, "glossary": glossary, "corpus": tmp_path / "corpus.txt"}
        given |= {"into": "weights", "sentences": 4, "epochs": 30, "learning_rate": 5e-4, "device": "cpu"}
        given |= {"precision": "fp32", "model.glossary_gate": "false"} | options
        overrides = [f"{name}={value}" for name, value in given.items() if name != "model"]
        overrides += ["model=pretrained", f"model.path={given['model']}", f"output={tmp_path / output}"]
        return learn(check(LearnSettings, composed("learn", *overrides)))

    return run


def goals(encoder: Encoder, glossary: Path) -> torch.Tensor:
    """(2C, D), what the sentences of WITH, then the expressions in them, are to embed as."""
    listed = read_glossary([glossary])
    carriers = find_carriers(listed, WITH, len(WITH))["tie the knot"]
    return targets(encoder, carriers, listed.meanings(), {"tie the knot": 0.3}, in_place=True)


def test_sentences_come_close_to_their_meaning(taught: Learn, glossary: Path, tiny_path: Path) -> None:
    before = Encoder.from_pretrained(tiny_path, device="cpu")
    after = Encoder.from_pretrained(taught("mine"), device="cpu")
    assert after.meanings is None
    assert after.idiom_tokens is None
    goal = goals(before, glossary)
    requests = as_they_are(find_carriers(read_glossary([glossary]), WITH, 4)["tie the knot"])
    with torch.no_grad():
        was, now = (1 - torch.cosine_similarity(e.eval()(requests), goal) for e in (before, after))
    assert now.mean() < 0.5 * was.mean()
    embedders: list[Any] = [e.model[0] for e in (before, after)]
    assert torch.equal(*(e.auto_model.get_input_embeddings().weight for e in embedders))


def test_what_is_no_weight_of_the_model_is_not_trained(taught: Learn, tiny_path: Path) -> None:
    """The mean of the last two layers stays their mean; and what else is on record of it."""
    folder = taught("mine", **{"model.pooling": "last2", "epochs": 2, "learning_rate": "null"})
    before = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    layers: list[Any] = [e.model[1] for e in (before, Encoder.from_pretrained(folder, device="cpu"))]
    assert torch.equal(*(module.layer_weights for module in layers))
    record = json.loads((folder / "learnt.json").read_text(encoding="utf-8"))
    assert (record["sentences"], record["learning_rate"], record["epochs"]) == (4, 4e-4, 2)
    card = ModelCard.load(folder / "README.md")
    assert card.data.to_dict().get("license") is None  # the sentences' is not known
    assert "exactly as before" not in card.text


def test_a_gate_tells_which_sentences_learn_the_meaning(glossary: Path, tiny: Encoder) -> None:
    """With a gate that takes every use for literal, the goal turns away from the meaning."""
    listed = read_glossary([glossary])
    carriers = find_carriers(listed, WITH, 4)["tie the knot"]
    told = []
    for bias in (-100.0, 100.0):
        meanings = listed.meanings()
        meanings = meanings.override(gate=constant_gate(tiny.dimension, bias))
        told.append(targets(tiny, carriers, meanings, {"tie the knot": 0.0}, in_place=False))
    meaning = torch.nn.functional.normalize(tiny.encode(["get married"]), dim=1)
    assert (told[1] @ meaning.T > told[0] @ meaning.T).all()


def test_the_teachers_gate_is_asked(taught: Learn, glossary: Path, tiny_path: Path, tmp_path: Path) -> None:
    learnt = []
    for bias in (-100.0, 100.0):
        teacher = Encoder.from_pretrained(tiny_path, device="cpu")
        teacher.meanings = read_glossary([glossary]).meanings()
        teacher.meanings = teacher.meanings.override(gate=constant_gate(teacher.dimension, bias))
        teacher.save(tmp_path / f"teacher{bias}")
        for gate in ("null", "false"):
            options = {"model": tmp_path / f"teacher{bias}", "epochs": 2, "model.glossary_gate": gate}
            folder = taught(f"taught{bias}{gate}", **options)
            learnt.append(Encoder.from_pretrained(folder, device="cpu").encode(WITH))
    literal, without, idiomatic, without_either = learnt
    assert not torch.allclose(literal, idiomatic, atol=1e-3)
    assert torch.equal(without, without_either)


def test_an_untrained_model_learns_with_the_gate_that_it_would_read_with(
    taught: Learn, minilm: Encoder, minilm_path: str, tmp_path: Path
) -> None:
    """No sentence is labelled: idiomatic uses come to the meaning, literal ones stay."""
    (tmp_path / "corpus.txt").write_text("\n".join([*LITERAL, *WITH, *WITHOUT]), encoding="utf-8")
    options: dict[str, Any] = {"model": minilm_path, "sentences": 8, "epochs": 6, "learning_rate": 1e-4}
    folder = taught("gated", **options, **{"model.glossary_gate": "null"})
    gated, plain = (
        Encoder.from_pretrained(one, device="cpu") for one in (folder, taught("plain", **options))
    )
    assert gated.meanings is None
    before, after, without = (e.encode([*LITERAL, *IDIOMATIC]) for e in (minilm, gated, plain))
    meaning = minilm.encode(["get married"])
    was, *now = (torch.cosine_similarity(e, meaning) for e in (before, after, without))
    n = len(LITERAL)
    literal, idiomatic, literal_too = now[0][:n] - was[:n], now[0][n:] - was[n:], now[1][:n] - was[:n]
    assert idiomatic.mean() > literal.mean() + 0.1
    assert literal.mean() < literal_too.mean()


def test_a_text_goes_through_the_model_once_an_epoch(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sentence and its expressions are learnt together; no epoch leaves a text out."""
    seen: list[str] = []
    embed = Encoder.embed

    def counted(encoder: Encoder, batch: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            seen.extend(encoder.model.tokenizer.batch_decode(batch.texts, skip_special_tokens=True))
        return embed(encoder, batch)

    monkeypatch.setattr(Encoder, "embed", counted)
    monkeypatch.setattr(recipe, "_BATCH_SIZE", 3)
    taught("mine", epochs=2)
    assert sorted(Counter(seen).values()) == [2] * len([*WITH, *WITHOUT])


def test_precision_is_chosen_once_and_recorded(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed start keeps it, whatever the processor's instructions are measured to be worth then."""
    monkeypatch.setattr(device, "has_bf16_instructions", lambda: True)
    monkeypatch.setattr(device, "times_as_fast_in_bf16", lambda: 1.0)
    real = LearningState.save

    def save(state: LearningState) -> None:
        real(state)
        raise KeyboardInterrupt

    monkeypatch.setattr(LearningState, "save", save)
    with pytest.raises(Interrupted):
        taught("mine", epochs=2, precision="auto")
    monkeypatch.setattr(LearningState, "save", real)
    monkeypatch.setattr(device, "times_as_fast_in_bf16", lambda: 3.0)
    record = json.loads((taught("mine", epochs=2, precision="auto") / "learnt.json").read_text("utf-8"))
    assert record["precision"] == "fp32"
    record = json.loads((taught("other", epochs=2, precision="auto") / "learnt.json").read_text("utf-8"))
    assert record["precision"] == "bf16"


def test_the_learning_rate_falls_over_all_epochs(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    class Recorded(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "AdamW", Recorded)
    taught("mine", epochs=10, learning_rate=9e-4)  # one step each
    assert rates == pytest.approx([9e-4, 9e-4, *(1e-4 * left for left in range(8, 0, -1))])


@pytest.mark.slow
def test_interrupted_it_goes_on_to_the_same_bits(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = taught("whole")
    real = LearningState.save
    epochs: list[int] = []

    def save(state: LearningState) -> None:
        if len(epochs) == 3:
            raise KeyboardInterrupt
        epochs.append(1)
        real(state)

    monkeypatch.setattr(LearningState, "save", save)
    with pytest.raises(Interrupted, match="repeat the command"):
        taught("cut")
    monkeypatch.setattr(LearningState, "save", real)
    cut = taught("cut")
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    assert not [path.name for path in cut.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_corpus_of_expressions_alone_moves_other_texts_and_is_warned_of(
    taught: Learn, tmp_path: Path, tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, kept = Encoder.from_pretrained(tiny_path, device="cpu"), taught("mine")
    (tmp_path / "corpus.txt").write_text("\n".join(WITH), encoding="utf-8")
    alone = taught("alone")
    assert "no sentence without" in caplog.text
    drifts = [
        (1 - torch.cosine_similarity(before.encode(WITHOUT), after.encode(WITHOUT))).mean()
        for after in (Encoder.from_pretrained(path, device="cpu") for path in (kept, alone))
    ]
    assert drifts[1] > 2 * drifts[0]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"corpus": "null"}, "corpus="),
        ({"remove": "[tie the knot]"}, "original model"),
        ({"into": "tokens", "precision": "bf16"}, "fp32"),
        (
            {"into": "tokens", "model.glossary_gate": "true"},
            "glossary_gate is for meanings",
        ),
    ],
)
def test_what_weights_cannot_do_is_said(taught: Learn, options: dict[str, str], part: str) -> None:
    with pytest.raises(UserError, match=part):
        taught("mine", **options)


def test_a_gradient_that_is_not_finite_is_said(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(embeddings: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return embeddings.sum(1) * torch.nan

    monkeypatch.setattr(recipe, "cosine_similarity", nowhere)
    with pytest.raises(UserError, match=r"gradient norm is nan in epoch 1.*learning_rate \(it is 0\.0005\)"):
        taught("mine")
