"""A step does what its definition says: gradient, update, learning rates, dropout, order of the rows.

Of several processes, and with and without gradient caching for every objective, see test_processes.py. The
triplet loss holds a side of a triplet fixed, so its gradient is no derivative; its own tests have it by hand.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from idiomtune import Encoder
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import TrainableEmbedder
from idiomtune.training.step import Trainer
from tests.tiny_runs import train

Weights = dict[str, torch.Tensor]
SEVERAL = "model.tokens_per_forward=512"


class DoneError(Exception):
    """All that is wanted of a run."""


def before_updates(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[Trainer, float], None], *, num: int
) -> None:
    """Let something look at a run between a step's gradient and its update, and end it after `num` times."""
    real, calls = Trainer.reduce_and_clip, 0

    def reduce(self: Trainer) -> tuple[float, bool]:
        nonlocal calls
        norm, is_invalid = real(self)
        calls += 1
        look(self, norm)
        if calls == num:
            raise DoneError
        return norm, is_invalid

    monkeypatch.setattr(Trainer, "reduce_and_clip", reduce)


def parameters(trainer: Trainer) -> dict[str, torch.nn.Parameter]:
    modules = trainer.encoder, trainer.objective.head
    return {f"{i}.{name}": p for i, m in enumerate(modules) for name, p in m.named_parameters()}


def assert_updated(trainer: Trainer, before: Weights, gradients: Weights) -> None:
    """Trained weights are those of AdamW's first step (with moments g and g²), the others stay.

    Also after the scoring in between.
    """
    decays = {id(p): g["weight_decay"] for g in trainer.optimizer.param_groups for p in g["params"]}
    moved = 0
    for name, p in parameters(trainer).items():
        if not p.requires_grad:
            assert torch.equal(p, before[name]), name
            continue
        rate, g = trainer.settings.learning_rate, gradients.get(name, torch.zeros_like(p))
        expected = before[name] * (1 - rate * decays[id(p)]) - rate * g / (g.abs() + 1e-8)
        # Without a gradient, AdamW leaves out the decay too.
        torch.testing.assert_close(p.detach(), expected if name in gradients else before[name])
        moved += not torch.equal(p, before[name])
    assert moved > 0


@torch.no_grad()
def assert_derivative(trainer: Trainer, norm: float) -> None:
    """The gradient is that of the step's loss, by differences: along itself, and randomly uphill."""
    state, objective = trainer.state, trainer.objective
    micro_batches = objective.epoch_steps(state.epoch, trainer.settings.accumulation)[state.step_in_epoch]
    num_anchors = sum(map(len, micro_batches))
    trained = [p for p in parameters(trainer).values() if p.requires_grad]
    starts = [p.clone() for p in trained]
    gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    unclipped = max(1.0, norm / (trainer.settings.clip_norm or math.inf))

    def loss_at(size: float, direction: list[torch.Tensor]) -> float:
        for p, start, d in zip(trained, starts, direction, strict=True):
            p.copy_(start + size * d)
        total = 0.0
        for micro, anchors in enumerate(micro_batches):
            batch = objective.batch(state.epoch, anchors)
            rows = trainer.embed(batch.requests, state.step, micro).rows
            total += len(anchors) / num_anchors * trainer.loss(rows, batch).loss.item()
        return total

    draw = torch.Generator().manual_seed(0)
    # Uphill in each number: a slope of mixed signs would drown in the loss's rounding. Tensors without a
    # gradient move, too; rows of tokens that the step does not read would hide the rest.
    random = [
        torch.randn(g.shape, generator=draw).abs() * g.sign()
        if g.any()
        else torch.randn(g.shape, generator=draw)
        for g in gradient
    ]
    for direction in (gradient, random):
        length = math.sqrt(sum(float(d.square().sum()) for d in direction))
        unit = [d / length for d in direction]
        expected = unclipped * sum(float((g * d).sum()) for g, d in zip(gradient, unit, strict=True))
        slopes = [(loss_at(s, unit) - loss_at(-s, unit)) / (2 * s) for s in (1e-2, 3e-3)]
        errors = [abs(slope - expected) / abs(expected) for slope in slopes]
        assert min(errors) < 0.02, (slopes, expected)


KINDS: dict[str, tuple[str, list[str]]] = {
    "parts, clipped": (
        "options",
        ["trainer.accumulation=2", "trainer.clip_norm=0.05", "trainer.weight_decay=0.5"],
    ),
    "gradient caching": ("options", ["trainer.gradient_caching=true", SEVERAL, "trainer.matryoshka=[16]"]),
    "adapters": (
        "options",
        ["forgetting.lora.rank=4", "forgetting.distillation=0.5", "trainer.weight_decay=0.5"],
    ),
    "idiom tokens alone": ("options", ["model.idiom_tokens=train", "trainer.only_idiom_tokens=true"]),
    "experts": ("experts_options", []),
    "experts, frozen encoder": ("experts_options", ["trainer.freeze_encoder=true"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_derivative_and_the_update_is_adamws(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With dropout, of the second step, after the first was taken and scored."""
    before: list[tuple[Weights, Weights]] = []

    def look(trainer: Trainer, norm: float) -> None:
        if before:
            assert_updated(trainer, *before[0])
            assert_derivative(trainer, norm)
        named = {name: p.detach().clone() for name, p in parameters(trainer).items()}
        gradients = {n: p.grad.clone() for n, p in parameters(trainer).items() if p.grad is not None}
        before.append((named, gradients))

    before_updates(monkeypatch, look, num=2)
    options, added = KINDS[kind]
    more = ["trainer.warmup_ratio=0", "trainer.head_learning_rate=null", "eval.every=1"]
    with pytest.raises(DoneError):
        train(tmp_path / "run", [*request.getfixturevalue(options), *added, *more])
    assert len(before) == 2


def test_the_optimizers_rates_are_those_of_the_schedule(
    tmp_path: Path, experts_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0 through the warm-up to 0, of the encoder and of an objective's modules."""
    rates: list[list[float]] = []

    def look(trainer: Trainer, _: float) -> None:
        rates.append([group["lr"] for group in trainer.optimizer.param_groups])

    before_updates(monkeypatch, look, num=6)
    more = ["trainer.warmup_steps=2", "trainer.head_learning_rate=1e-2", "eval.every=end"]
    with pytest.raises(DoneError):
        train(tmp_path / "run", [*experts_options, *more])
    theirs = get_linear_schedule_with_warmup(torch.optim.SGD([torch.zeros(1)]), 2, 6)
    for step, ours in enumerate(rates):
        assert ours == pytest.approx([rate * theirs.lr_lambdas[0](step) for rate in (1e-3, 1e-2)])


def test_dropout_is_on_while_training_and_off_while_scoring(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all modules, also in the step after an evaluation."""
    real, modes = Encoder.embed, []

    def embed(self: Encoder, *arguments: Any) -> torch.Tensor:
        modes.append((torch.is_grad_enabled(), {module.training for module in self.modules()}))
        return real(self, *arguments)

    monkeypatch.setattr(Encoder, "embed", embed)
    train(tmp_path / "run", [*options, "eval.every=1", "trainer.max_steps=3"])
    assert {is_training for is_training, _ in modes} == {True, False}
    assert all(found == {is_training} for is_training, found in modes)


@pytest.mark.parametrize("caching", [False, True])
def test_row_i_is_the_embedding_of_request_i(tiny: Encoder, caching: bool) -> None:
    """Whatever else is in the batch: longer and shorter texts, spans, copies, in several passes."""
    accelerator, processes = start_processes(choose_device("cpu", "fp32"))
    tiny.eval()
    tiny.tokens_per_forward = 64
    embed = TrainableEmbedder(tiny, accelerator, processes, seed=1, caching=caching)
    texts = [f"{'very ' * (i % 7)}rough number {i % 9}." for i in range(20)]
    requests = [EmbeddingRequest(text) for text in texts]
    requests += [EmbeddingRequest(text, (0, 5), pooling="span") for text in reversed(texts)]
    rows = embed(requests, 0).rows.detach()
    torch.testing.assert_close(
        rows, torch.cat([tiny.forward([r]) for r in requests]).detach(), atol=1e-5, rtol=1e-4
    )
