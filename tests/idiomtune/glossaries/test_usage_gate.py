"""The gate of meanings: by its formula, only where expressions stand, the same once saved and in threads."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import normalize

from idiomtune import Encoder
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.encoder.reading import Tokenizer
from idiomtune.errors import UserError
from idiomtune.glossaries.meanings import GlossaryReader, UsageClassifier
from idiomtune.glossaries.usage_gate import fit_usage_gate
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import FrozenEmbedder
from idiomtune.training.forgetting import Distillation

SENSES = {"break the ice": ["make people relax"], "home run": ["a great success"]}
ICE, RUN = "They broke the ice.", "A home run, and they broke the ice."


def with_gate(encoder: Any, shared: tuple[float, ...] = (), **options: Any) -> Any:
    """With a random gate of two layers."""
    width = 6 * encoder.dimension
    numbers = torch.randn(width * 4 // 3, generator=torch.Generator().manual_seed(0)).tolist()
    gate = UsageClassifier(numbers[:width], -0.5, (1, 2), tuple(numbers[width:]), (), shared)
    encoder.meanings = GlossaryReader(SENSES, gate=gate, **options)
    return encoder


@pytest.fixture
def gated(tiny: Encoder) -> Any:
    return with_gate(tiny)


def features_of(encoder: Encoder, text: str, words: str) -> torch.Tensor:
    """Of layers 1 and 2, by loops over the tokens of the text alone."""
    start = text.index(words)
    read = encoder.model.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = read.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        states = encoder.transformer(**read, output_hidden_states=True).hidden_states
    pieces = []
    for layer in states[1:3]:
        is_in = [first < last and first < start + len(words) and last > start for first, last in offsets]
        inside, around = ([h for h, i in zip(layer[0], is_in, strict=True) if i == some] for some in (1, 0))
        pieces += [torch.stack(some).mean(0) for some in (inside + around, inside, around)]
    return normalize(torch.stack(pieces), dim=1).flatten()


def test_usage_is_told_by_hidden_layers_of_the_text_and_of_the_expression_alone(gated: Any) -> None:
    gate = gated.meanings.gate
    for words, name in (("home run", "home run"), ("broke the ice", "break the ice")):
        text, alone = features_of(gated, RUN, words), features_of(gated, name, name)
        itself = alone.view(2, 3, -1)[:, 1].flatten()
        scale = 6**0.5  # of six unit vectors
        logit = float(text @ torch.tensor(gate.direction) + itself @ torch.tensor(gate.bare)) / scale
        assert gated.usage([RUN], [name]) == pytest.approx([1 / (1 + np.exp(-(logit + gate.bias)))], abs=1e-5)
    assert gated.transformer.config.output_hidden_states is False


def span_of(text: str, words: str, **options: Any) -> EmbeddingRequest:
    start = text.index(words)
    return EmbeddingRequest(text, (start, start + len(words)), pooling="span", **options)


@pytest.mark.parametrize(
    ("form", "weight", "share"), [("append", 0.6, 0.0), ("replace", 0.8, 0.0), ("replace", 0.8, 0.1)]
)
def test_texts_are_mixed_by_their_usage(
    tiny: Encoder, form: str, weight: float, share: float, tmp_path: Path
) -> None:
    """Each from its readings, one at a time; models that read no meanings move the text's own embedding."""
    shared = torch.linspace(0, share, tiny.dimension)
    gated = with_gate(tiny, tuple(shared.tolist()) if share else (), form=form).requires_grad_(False)
    requests = [
        *(EmbeddingRequest(ICE), EmbeddingRequest(RUN), EmbeddingRequest(RUN, (0, 10), pooling="span")),
        EmbeddingRequest(RUN, (12, 20), pooling="span"),  # holds no part of an expression
        *(EmbeddingRequest(ICE, with_meanings=False), EmbeddingRequest("nothing")),
    ]
    meanings = gated.meanings
    after = gated(requests)
    of_ice, of_run = gated.usage([RUN, RUN], ["break the ice", "home run"])
    usages = [gated.usage([ICE], "break the ice")[0], (of_ice + of_run) / 2, of_run]
    gated.meanings = replace(meanings, gate=None) if form == "append" else None
    before = gated(requests)
    spans = [span_of(ICE, "broke the ice"), span_of(RUN, "home run"), span_of(RUN, "broke the ice")]
    of_expressions = normalize(gated(spans), dim=1)
    others = [of_expressions[0], of_expressions[1:].sum(0), before[1]]

    def reading(text: str, *words: str) -> torch.Tensor:
        asked = [span_of(text, each, with_meanings=False) for each in words]
        rows = gated(asked or [EmbeddingRequest(text, with_meanings=False)])
        return normalize(normalize(rows, dim=1).sum(0), dim=0)

    ice, run = "They make people relax.", "A a great success, and they make people relax."
    for row, text, words in (
        (0, ice, ["make people relax"]),
        (1, run, ["a great success", "make people relax"]),
        (2, run, ["a great success"]),
    ):
        own_meanings = normalize(torch.stack([reading(each) for each in words]).sum(0), dim=0)
        meaning = normalize(reading(text, *words) + 0.5 * own_meanings, dim=0)
        own = normalize(normalize(before[row], dim=0) + normalize(others[row], dim=0), dim=0)
        usage = usages[row]
        own, meaning, replaced = own - shared, meaning - shared, reading(text) - shared
        length = own.norm()
        if share:
            own, meaning, replaced = (normalize(part, dim=0) for part in (own, meaning, replaced))
        mixed = own + weight * (usage * (meaning - own) - (1 - usage) ** 2 * replaced)
        mixed = shared + length * normalize(mixed, dim=0)
        assert torch.allclose(after[row], normalize(mixed, dim=0) * before[row].norm(), atol=1e-5)
    assert torch.allclose(after[3:], before[3:], atol=1e-6)

    gated.meanings = meanings
    gated.save(tmp_path / "saved")
    loaded = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert torch.allclose(loaded(requests), after, atol=1e-6)
    content = json.loads((tmp_path / "saved" / "glossary.json").read_text())
    for numbers in ("direction", "mean") if share else ("direction",):  # a gate of another size
        damaged = content | {"gate": content["gate"] | {numbers: content["gate"][numbers][:-1]}}
        (tmp_path / "saved" / "glossary.json").write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=r"glossary\.json"):
            Encoder.from_pretrained(tmp_path / "saved")


def test_in_training_and_near_the_maximum_length_nothing_is_mixed(gated: Any) -> None:
    long = EmbeddingRequest("word " * 600 + ICE)
    with_gate = gated([long])
    assert len(gated.readings([EmbeddingRequest(ICE)])[0]) == 7
    gated.train()
    assert gated.readings([EmbeddingRequest(ICE)])[0] == [EmbeddingRequest(ICE)]
    dropped = torch.get_rng_state()
    trained = gated([EmbeddingRequest(ICE)])
    gated.meanings = replace(gated.meanings, gate=None)
    torch.set_rng_state(dropped)
    assert torch.equal(trained, gated([EmbeddingRequest(ICE)]))
    assert torch.allclose(with_gate, gated.eval()([long]), atol=1e-6)
    # Nor in a query that its prompt fills, where the sentence with a short meaning would fit.
    gated.meanings = GlossaryReader({"break the ice": ["x"]}, gate=UsageClassifier([], 0.0, (), ()))
    query = EmbeddingRequest(ICE, role="query", instruction="Find sentences that mean the same")
    (read,) = gated.reader.read([replace(query, with_meanings=False)])
    gated.model.max_seq_length = len(read.tokens.input_ids) - 1
    gated._tokenizer.forget()
    assert gated.readings([query])[0] == [query]


def test_texts_count_once_and_are_tokenized_together(gated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [EmbeddingRequest(ICE), EmbeddingRequest(RUN), EmbeddingRequest("nothing")]
    passes: list[int] = []
    gated(requests, passes.append)
    assert sum(passes) == len(requests)
    calls = Mock(side_effect=Tokenizer.__call__)
    monkeypatch.setattr(Tokenizer, "__call__", lambda *arguments: calls(*arguments))
    gated.readings([EmbeddingRequest(f"{i}: {ICE}") for i in range(9)])
    assert calls.call_count == 2


def test_a_frozen_encoder_trains_on_embeddings_without_the_gate(gated: Any) -> None:
    """The gate changes with each evaluation; a resumed run has another than the run had at that step."""
    accelerator, processes = start_processes(choose_device("cpu", "fp32"))
    rows = FrozenEmbedder(gated, accelerator, processes)([EmbeddingRequest(ICE)], 0).rows
    targets = Distillation(gated, [EmbeddingRequest(ICE)], 1.0, processes)._embeddings
    assert torch.equal(targets, rows)  # a teacher's are likewise without
    assert not torch.allclose(rows, gated([EmbeddingRequest(ICE)]))
    gated.meanings = replace(gated.meanings, gate=None)
    assert torch.allclose(rows, gated([EmbeddingRequest(ICE)]), atol=1e-6)


def test_a_gate_compares_an_expression_with_itself_alone_and_trusts_a_glossary_without_context() -> None:
    """The regression on [x, 1.5 (x - a) of the expression]; uses without context weigh a fifth of others.

    Both usages of each expression weigh the same, however many sentences there are of one of them.
    """
    rng, counts = np.random.default_rng(2), (7, 7, 5, 6)  # of ten uses in context, those that are idiomatic
    uses = [[True] * n + [False] * (10 - n) + [True] for n in counts]
    rows, alone = rng.normal(size=(44, 6)), np.repeat(rng.normal(size=(4, 6)), 11, axis=0)
    names, labels = np.repeat(list("abcd"), 11), np.array(uses).ravel()
    bare = [10, 21, 32, 43]  # the last of each
    order = [i for i in range(44) if i not in bare] + bare
    rows, alone, names, labels = rows[order], alone[order], names[order], labels[order]
    units, apart = ([r / np.linalg.norm(r) * np.sqrt(6) for r in some] for some in (rows, alone))
    inputs = np.array([[*x, *(1.5 * (x - a)[2:4])] for x, a in zip(units, apart, strict=True)])
    rarer = [min(n, 10 - n) for n in counts]
    shares = [[r / n] * n + [r / (10 - n)] * (10 - n) for n, r in zip(counts, rarer, strict=True)]
    weights = [*np.ravel(shares) / np.sum(shares), *[0.2 / 4] * 4]

    def loss(p: np.ndarray) -> float:
        z = inputs @ p[:8] + p[8]
        return float(np.dot(weights, np.log1p(np.exp(np.where(labels, -z, z)))) + 0.5 * p[:8] @ p[:8])

    best = minimize(loss, np.zeros(9), tol=1e-10).x
    given = torch.tensor(rows), labels.tolist(), names.tolist(), (1,), torch.tensor(alone)
    gate = fit_usage_gate(*given, num_bare=4)
    told = gate.usage(gate.terms(torch.tensor(rows)), gate.terms(torch.tensor(alone)))
    assert told.numpy() == pytest.approx(1 / (1 + np.exp(-(inputs @ best[:8] + best[8]))), abs=1e-3)
    assert gate.bare != fit_usage_gate(*given).bare


def test_names_without_a_meaning_come_together_and_their_usages_apart(tiny: Encoder, tmp_path: Path) -> None:
    """e + n / 2 + (g - 1/2) u by hand; where a text also has an expression with a meaning, that counts."""
    known = with_gate(tiny, form="replace").meanings
    both = tiny.encode([RUN])
    tiny.meanings = replace(known, senses={**SENSES, "home run": []})
    alone, text = tiny.encode([RUN])[0], "A home run."
    (named,) = tiny.encode([text])
    tiny.save(tmp_path / "saved")
    assert torch.allclose(Encoder.from_pretrained(tmp_path / "saved").encode([text])[0], named, atol=1e-6)
    usage = tiny.usage([text], "home run")[0]
    tiny.meanings = replace(known, senses={"break the ice": SENSES["break the ice"]})
    assert torch.allclose(alone, tiny.encode([RUN])[0], atol=1e-6)
    assert not torch.allclose(alone, both[0], atol=1e-3)
    tiny.meanings = None
    units = normalize(tiny.encode([text, text, "home run"], [None, (2, 10), None]), dim=1)
    u = torch.tensor([1.0, -1.0]).repeat(tiny.dimension // 2) / tiny.dimension**0.5
    expected = normalize(units[0] + units[1], dim=0) + units[2] / 2 + (usage - 0.5) * u
    assert torch.allclose(normalize(named, dim=0), normalize(expected, dim=0), atol=1e-5)


NAME = "break the ice"
TEXTS = [f"On day {day} {words}" for day in range(3) for words in ("she broke the ice.", "we broke the ice")]


def test_threads_get_what_they_would_get_in_turn(gated: Any, tmp_path: Path) -> None:
    config: Any = gated.transformer.config
    before, bare = config.to_dict(), gated.reading(None)
    calls: list[Callable[[int], Any]] = [
        lambda n: gated.usage(TEXTS[n % 3 :], NAME),
        lambda n: gated.encode(TEXTS[n % 3 :], [NAME] * len(TEXTS[n % 3 :])).tolist(),
        lambda n: gated.search(f"Day {n % 3}", TEXTS),
        lambda n: bare.encode(TEXTS[n % 3 :]).tolist(),
    ]
    tasks = [(call, n) for n in range(9) for call in calls]
    in_turn = [call(n) for call, n in tasks[: 3 * len(calls)]]
    gated._tokenizer.forget()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda task: task[0](task[1]), tasks))
    assert done == in_turn * 3
    assert config.to_dict() == before
    gated.save(tmp_path / "saved")
    assert '"output_hidden_states": true' not in (tmp_path / "saved" / "config.json").read_text()


def test_an_encoder_in_use_is_copied(gated: Any) -> None:
    usage, rows = gated.usage(TEXTS, NAME), gated.encode(TEXTS)
    twin = deepcopy(gated)
    assert torch.equal(twin.encode(TEXTS), rows)
    assert twin.usage(TEXTS, NAME) == gated.usage(TEXTS, NAME) == usage
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(gated.encode(TEXTS), rows)


def test_the_last_thread_to_leave_brings_modes_back(tiny: Encoder) -> None:
    tiny.train()
    first, second = ExitStack(), ExitStack()
    for stack in (first, second):
        stack.enter_context(evaluation_mode(tiny))
    first.close()
    assert not tiny.training
    second.close()
    assert tiny.training
