"""The gate of meanings: by its formula, only where expressions stand, and the same once saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import normalize

from idiomtune.encoder.device import place, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import Meanings, UsageGate
from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.reading import Tokenizer, Tokens
from idiomtune.encoder.usage_gate import GatedRequests, fit_usage_gate
from idiomtune.io.processes import Processes
from idiomtune.requests import Request
from idiomtune.training.embedder import FrozenEmbedder
from idiomtune.training.regularization import Distillation

SENSES = {"break the ice": ["make people relax"], "home run": ["a great success"]}
ICE, RUN = "They broke the ice.", "A home run, and they broke the ice."


@pytest.fixture
def gated(tiny: Encoder) -> Encoder:
    direction = torch.randn(tiny.dimension, generator=torch.Generator().manual_seed(0)).tolist()
    tiny.meanings = Meanings(SENSES, gate=UsageGate(direction, -0.5))
    return tiny


def test_texts_are_mixed_by_their_usage(gated: Encoder, tmp_path: Path) -> None:
    """Each from its readings, one at a time."""
    requests = [
        Request(ICE),
        Request(RUN),
        Request(RUN, (0, 10), pooling="span"),
        Request(RUN, (12, 20), pooling="span"),  # holds no part of an expression
        Request(ICE, with_meanings=False),
        Request("nothing"),
    ]
    meanings = gated.meanings
    assert meanings is not None
    gate = meanings.gate
    assert gate is not None
    gated.requires_grad_(False)
    after = gated(requests)
    gated.meanings = replace(meanings, gate=None)
    before = gated(requests)
    spans = [Request(ICE, (5, 18)), Request(RUN, (2, 10)), Request(RUN, (RUN.index("broke"), len(RUN) - 1))]
    of_expressions = normalize(gated([replace(span, pooling="span") for span in spans]), dim=1)
    others = [of_expressions[0], of_expressions[1:].sum(0), before[1]]

    def reading(text: str, words: str | None = None) -> torch.Tensor:
        start = 0 if words is None else text.index(words)
        span = None if words is None else (start, start + len(words))
        request = Request(text, span, pooling="sentence" if span is None else "span", with_meanings=False)
        return normalize(gated([request])[0], dim=0)

    ice, run = "They make people relax.", "A a great success, and they make people relax."
    both = reading(run, "a great success") + reading(run, "make people relax")
    for row, text, sentence, meaning in (
        (0, ICE, reading(ice), reading(ice, "make people relax")),
        (1, RUN, reading(run), normalize(both, dim=0)),
        (2, RUN, reading(run), reading(run, "a great success")),
    ):
        logit = float(reading(text) @ torch.tensor(gate.direction)) + gate.bias
        usage = 1 / (1 + np.exp(-logit))
        own = normalize(normalize(before[row], dim=0) + normalize(others[row], dim=0), dim=0)
        mixed = own + 0.6 * (usage * (meaning - own) - (1 - usage) * sentence)
        assert torch.allclose(after[row], normalize(mixed, dim=0) * before[row].norm(), atol=1e-5)
    assert torch.allclose(after[3:], before[3:], atol=1e-6)

    gated.meanings = meanings
    assert torch.allclose(embed_all(gated, requests, Processes()), after, atol=1e-6)
    gated.save(tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert torch.allclose(loaded(requests), after, atol=1e-6)


def test_in_training_and_near_the_maximum_length_nothing_is_mixed(gated: Encoder) -> None:
    assert gated.meanings is not None
    long = Request("word " * 600 + ICE)
    with_gate = gated([long])
    assert GatedRequests([Request(ICE)], gated.reader, is_on=False).requests == [Request(ICE)]
    assert len(GatedRequests([Request(ICE)], gated.reader, is_on=True).requests) == 5
    gated.train()
    dropped = torch.get_rng_state()
    trained = gated([Request(ICE)])
    gated.meanings = replace(gated.meanings, gate=None)
    torch.set_rng_state(dropped)
    assert torch.equal(trained, gated([Request(ICE)]))
    assert torch.allclose(with_gate, gated.eval()([long]), atol=1e-6)


def test_a_query_that_its_prompt_fills_is_not_mixed(gated: Encoder) -> None:
    """Its meaning is shorter than its expression, so that the sentence with the meaning would fit."""
    gated.meanings = Meanings({"break the ice": ["x"]}, gate=UsageGate([0.0] * gated.dimension, 0.0))
    query = Request(ICE, role="query", instruction="Find sentences that mean the same")
    (read,) = gated.reader.read([replace(query, with_meanings=False)])
    gated.model.max_seq_length = len(read.tokens.input_ids) - 1
    gated._tokenizer.forget()
    assert GatedRequests([query], gated.reader, is_on=True).requests == [query]


def test_texts_count_once_and_are_tokenized_together(gated: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [Request(ICE), Request(RUN), Request("nothing")]
    passes: list[int] = []
    gated(requests, passes.append)
    assert sum(passes) == len(requests)
    passes.clear()
    embed_all(gated, requests, Processes(), passes.append)
    assert sum(passes) == len(requests)
    calls: list[int] = []
    tokenize = Tokenizer.__call__

    def counted(self: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
        calls.append(len(texts))
        return tokenize(self, texts)

    monkeypatch.setattr(Tokenizer, "__call__", counted)
    GatedRequests([Request(f"{i}: {ICE}") for i in range(9)], gated.reader, is_on=True)
    assert len(calls) == 2


def test_a_frozen_encoder_trains_on_embeddings_without_the_gate(gated: Encoder) -> None:
    """The gate changes with each evaluation; a resumed run has another than the run had at that step."""
    accelerator, processes = start_processes(place("cpu", "fp32"))
    rows = FrozenEmbedder(gated, accelerator, processes)([Request(ICE)], 0).rows
    targets = Distillation(gated, [Request(ICE)], 1.0, processes)._embeddings
    assert torch.equal(targets, rows)  # a teacher's are likewise without
    assert gated.meanings is not None
    assert not torch.allclose(rows, gated([Request(ICE)]))
    gated.meanings = replace(gated.meanings, gate=None)
    assert torch.allclose(rows, gated([Request(ICE)]), atol=1e-6)


def test_the_gate_is_a_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(60) < 0.25
    rows = rng.normal(size=(60, 6)) + labels[:, None] * np.linspace(0, 1.5, 6)
    gate = fit_usage_gate(torch.tensor(rows), labels.tolist())
    inputs = rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.sqrt(6)

    def loss(parameters: np.ndarray) -> float:
        total = 0.25 * float(parameters[:6] @ parameters[:6])  # half the penalty
        for x, label in zip(inputs, labels, strict=True):
            chance = 1 / (1 + np.exp(-(x @ parameters[:6] + parameters[6])))
            share = np.mean(labels == label)
            total -= np.log(chance if label else 1 - chance) / (2 * share * len(rows))
        return total

    best = minimize(loss, np.zeros(7), tol=1e-9).x
    expected = 1 / (1 + np.exp(-(inputs @ best[:6] + best[6])))
    assert gate.usage(torch.tensor(rows)).numpy() == pytest.approx(expected, abs=1e-4)
