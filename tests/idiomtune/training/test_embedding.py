"""Gradient caching: the same gradient, dropout included, in the memory of one pass."""

from typing import Any
from unittest.mock import patch

import pytest
import torch

from idiomloss import InfoNCELoss, candidate_masks
from idiomtune import Encoder
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.trained_parts import checkpoint_activations
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import TrainableEmbedder


def embedder(encoder: Encoder, *, caching: bool = False) -> TrainableEmbedder:
    accelerator, processes = start_processes(choose_device("cpu", "fp32"))
    return TrainableEmbedder(encoder, accelerator, processes, seed=1, caching=caching)


class Held:
    """A tensor that a graph keeps, counted as long as it does."""

    live = peak = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()  # an output that a graph keeps would keep its graph
        Held.live += tensor.nbytes
        Held.peak = max(Held.peak, Held.live)

    def __del__(self) -> None:
        Held.live -= self.tensor.nbytes


def peak_of_step(encoder: Encoder, batch_size: int, *, caching: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that the encoder's graph holds at most in a step of that many anchors, each with a positive."""
    Held.live = Held.peak = 0
    real = Encoder.embed

    def watched(self: Encoder, one: Any) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            return real(self, one)

    embed = embedder(encoder, caching=caching)
    texts = [f"the ship {i} broke the ice of the harbour" for i in range(2 * batch_size)]
    owner = torch.arange(batch_size)
    masks = candidate_masks(batch_size, owner, torch.ones(batch_size, dtype=torch.bool))
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "embed", watched)
        embedded = embed([EmbeddingRequest(text) for text in texts], 0)
        embedded.backward(InfoNCELoss()(embedded.rows[:batch_size], embedded.rows[batch_size:], masks))
    assert all(p.grad is not None for n, p in encoder.named_parameters() if "pooler" not in n)
    return Held.peak


@pytest.mark.slow
def test_memory_is_flat_from_64_to_512_anchors(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With gradient caching; without it activation checkpointing takes less than half."""
    tiny.train()
    tiny.tokens_per_forward = 512
    small, large = (peak_of_step(tiny, size, caching=True, monkeypatch=monkeypatch) for size in (64, 512))
    assert large < 1.3 * small  # a token more for longer numbers
    whole = peak_of_step(tiny, 512, caching=False, monkeypatch=monkeypatch)
    assert whole > 6 * small
    tiny.zero_grad()
    checkpoint_activations(tiny.transformer)
    assert peak_of_step(tiny, 512, caching=False, monkeypatch=monkeypatch) < 0.5 * whole


def test_every_pass_draws_numbers_of_its_own(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its seed, step, micro-step and number; those of the objective's modules differ from all of them."""
    tiny.tokens_per_forward = 64
    drawn: list[tuple[int, ...]] = []
    monkeypatch.setattr("idiomtune.training.embedder.seed_everything", lambda *numbers: drawn.append(numbers))
    embed = embedder(tiny)
    requests = [EmbeddingRequest(f"the ship {i} broke the ice of the harbour") for i in range(20)]
    for step in (0, 1):
        for micro in (0, 1):
            embed(requests, step, micro)
    assert len(drawn) > 12
    assert len(set(drawn)) == len(drawn)
    assert {(1, step, micro) for step in (0, 1) for micro in (0, 1)} <= set(drawn)
    padded = {(*numbers, 0)[:4] for numbers in drawn}  # to numpy, 1, 0, 0 and 1, 0, 0, 0 are one seed
    assert len(padded) == len(drawn)


@pytest.mark.parametrize("caching", [False, True])
def test_views_of_a_text_have_dropout_of_their_own(tiny: Encoder, caching: bool) -> None:
    """Also where gradient caching draws them again; without dropout they are equal."""
    embed = embedder(tiny.train(), caching=caching)
    texts = ["the ship broke the ice", "he broke the ice with a joke"]
    views = [EmbeddingRequest(text, dropout_pass=view) for text in texts for view in (0, 1, 0)]
    embedded = embed(views, 0)
    assert embedded.num_texts == 4
    for i in (0, 3):
        assert torch.equal(embedded.rows[i], embedded.rows[i + 2])
        assert not torch.allclose(embedded.rows[i], embedded.rows[i + 1], atol=1e-3)
    embedded.backward(embedded.rows[::3].sum())
    tiny.eval()
    rows = tiny(views)
    torch.testing.assert_close(rows[0], rows[1])


@torch.no_grad()
def test_a_large_corpus_is_read_in_parts(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings as of all at once, in their order; a text's sentence and span still share one pass."""
    texts = [f"{'very ' * (i % 7)}rough number {i}." for i in range(23)]
    requests = [EmbeddingRequest(text) for text in texts] + [
        EmbeddingRequest(text, pooling="span", span=(0, 5)) for text in texts if text.startswith("rough")
    ]
    whole = tiny(requests)
    monkeypatch.setattr("idiomtune.encoder.encoder._CHUNK_SIZE", 9)
    seen: list[int] = []
    with patch.object(tiny, "embed", side_effect=tiny.embed) as embed:
        in_parts = tiny(requests, seen.append)
    passes = [call.args[0].num_texts for call in embed.call_args_list]
    torch.testing.assert_close(in_parts, whole, atol=1e-6, rtol=1e-5)
    assert max(passes) <= 9
    assert 23 <= sum(passes) <= 23 + len(requests) // 9  # once, but for those at a part's end
    assert sum(seen) == sum(passes)
