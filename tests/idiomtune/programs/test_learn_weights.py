"""`idiomtune learn into=weights`: what weights learn, what stays, what an interruption costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from tests.own_data import write
from tests.tiny_models import constant_gate
from tests.tiny_runs import composed

WITH = [
    *("They tied the knot in May.", "We tie the knot next year."),
    *("She ties the knot with two ropes.", "After ten years they tied the knot."),
]
LITERAL = ["He tied the knot in the rope.", "Tie the knot around the pole.", "The sailor ties the knot."]
IDIOMATIC = ["They will tie the knot in church.", "My sister tied the knot at last."]
WITHOUT = ["The ice melts slowly.", "A cat slept on the mat.", "He reads the paper.", "It rained all day."]
Learn = Callable[..., Path]


@pytest.fixture
def glossary(tmp_path: Path) -> Path:
    return write(tmp_path / "mine.tsv", "expression\tmeaning\ntie the knot\tget married\n")


@pytest.fixture
def taught(tmp_path: Path, glossary: Path, tiny_path: Path) -> Learn:
    write(tmp_path / "corpus.txt", "\n".join([*WITH, *WITHOUT]))

    def run(output: str, **options: Any) -> Path:
        given: dict[str, Any] = {"model": tiny_path, "glossary": glossary, "corpus": tmp_path / "corpus.txt"}
        given |= {"into": "weights", "sentences": 4, "epochs": 30, "learning_rate": 5e-4, "device": "cpu"}
        given |= {"precision": "fp32", "model.glossary_gate": "false"} | options
        overrides = [f"{name}={value}" for name, value in given.items() if name != "model"]
        overrides += ["model=pretrained", f"model.path={given['model']}", f"output={tmp_path / output}"]
        return learn(check(LearnSettings, composed("learn", *overrides)))

    return run


def loaded(folder: Path, **options: Any) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu", **options)


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "learnt.json").read_text(encoding="utf-8"))
    return content


@contextmanager
def interrupted_after(saves: int) -> Iterator[None]:
    """What is learnt after so many saves is lost, and the message says how to resume."""
    real, number = LearningState.save, 0

    def save(state: LearningState) -> None:
        nonlocal number
        if number == saves:
            raise KeyboardInterrupt
        number += 1
        real(state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LearningState, "save", save)
        with pytest.raises(Interrupted, match="repeat the command"):
            yield


def goals(encoder: Encoder, glossary: Path) -> torch.Tensor:
    """(2C, D), what the sentences of WITH, then the expressions in them, are to embed as."""
    listed = read_glossary([glossary])
    carriers = find_carriers(listed, WITH, len(WITH))["tie the knot"]
    return targets(encoder, carriers, listed.meanings(), {"tie the knot": 0.3}, in_place=True)


def test_sentences_come_close_to_their_meaning(taught: Learn, glossary: Path, tiny_path: Path) -> None:
    before, after = loaded(tiny_path), loaded(taught("mine"))
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
    folder = taught(
        "mine", **{"model.pooling": "last2", "epochs": 2, "sentences": 3, "learning_rate": "null"}
    )
    layers: list[Any] = [e.model[1] for e in (loaded(tiny_path, pooling="last2"), loaded(folder))]
    assert torch.equal(*(module.layer_weights for module in layers))
    assert [record(folder)[name] for name in ("sentences", "learning_rate", "epochs")] == [3, 4e-4, 2]
    assert record(folder)["sentences_found"] == {"tie the knot": 3}
    card = ModelCard.load(folder / "README.md")
    assert card.data.to_dict().get("license") is None  # the sentences' is not known
    assert "exactly as before" not in card.text


def test_the_teachers_gate_is_asked(taught: Learn, glossary: Path, tiny_path: Path, tmp_path: Path) -> None:
    learnt = []
    for bias in (-100.0, 100.0):
        teacher = loaded(tiny_path)
        meanings = read_glossary([glossary]).meanings()
        teacher.meanings = meanings.override(gate=constant_gate(teacher.dimension, bias))
        teacher.save(tmp_path / f"teacher{bias}")
        for gate in ("null", "false"):
            options = {"model": tmp_path / f"teacher{bias}", "epochs": 2, "model.glossary_gate": gate}
            learnt.append(loaded(taught(f"taught{bias}{gate}", **options)).encode(WITH))
    literal, without, idiomatic, without_either = learnt
    assert not torch.allclose(literal, idiomatic, atol=1e-3)
    assert torch.equal(without, without_either)


def test_an_untrained_model_learns_with_the_gate_that_it_would_read_with(
    taught: Learn, minilm: Encoder, minilm_path: str, tmp_path: Path
) -> None:
    """No sentence is labelled: idiomatic uses come to the meaning, literal ones stay."""
    write(tmp_path / "corpus.txt", "\n".join([*LITERAL, *WITH, *WITHOUT]))
    options: dict[str, Any] = {"model": minilm_path, "sentences": 8, "epochs": 6, "learning_rate": 1e-4}
    gated = loaded(taught("gated", **options, **{"model.glossary_gate": "null"}))
    plain = loaded(taught("plain", **options))
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
    options = {"epochs": 2, "precision": "auto"}
    with interrupted_after(1):
        taught("mine", **options)
    monkeypatch.setattr(device, "times_as_fast_in_bf16", lambda: 3.0)
    assert record(taught("mine", **options))["precision"] == "fp32"
    assert record(taught("other", **options))["precision"] == "bf16"


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
def test_interrupted_it_goes_on_to_the_same_bits(taught: Learn) -> None:
    whole = taught("whole", epochs=8)
    with interrupted_after(3):
        taught("cut", epochs=8)
    cut = taught("cut", epochs=8)
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    assert not [path.name for path in cut.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_corpus_of_expressions_alone_moves_other_texts_and_is_warned_of(
    taught: Learn, tmp_path: Path, tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, kept = loaded(tiny_path).encode(WITHOUT), loaded(taught("mine"))
    write(tmp_path / "corpus.txt", "\n".join(WITH))
    alone = loaded(taught("alone"))
    assert "corpus" in caplog.text
    drifts = [(1 - torch.cosine_similarity(before, e.encode(WITHOUT))).mean() for e in (kept, alone)]
    assert drifts[1] > 2 * drifts[0]


def test_a_gradient_that_is_not_finite_is_said(taught: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(embeddings: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return embeddings.sum(1) * torch.nan

    monkeypatch.setattr(recipe, "cosine_similarity", nowhere)
    with pytest.raises(UserError, match=r"nan in epoch 1.*learning_rate.*0\.0005"):
        taught("mine")
