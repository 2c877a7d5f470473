"""How a CPU trains: attention of short texts, against PyTorch's own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional

import idiomtune.encoder.forward
from idiomtune import Encoder
from idiomtune.encoder.forward import SHORT_ATTENTION, attend
from idiomtune.requests import EmbeddingRequest

_BATCH, _HEADS, _LENGTH, _WIDTH = 3, 4, 11, 8
_exact = functional.scaled_dot_product_attention


def _module(groups: int = 1, is_causal: bool = False) -> Any:
    return SimpleNamespace(num_key_value_groups=groups, is_causal=is_causal)


def _inputs(groups: int = 1) -> list[Tensor]:
    torch.manual_seed(5)
    heads = (_HEADS, _HEADS // groups, _HEADS // groups)
    return [torch.randn(_BATCH, count, _LENGTH, _WIDTH, requires_grad=True) for count in heads]


def _padding() -> Tensor:
    lengths = torch.tensor([_LENGTH, 7, 3])[:, None, None, None]
    return (torch.arange(_LENGTH) < lengths).expand(-1, 1, _LENGTH, -1)


@pytest.mark.parametrize(
    ("groups", "scaling", "seen"),
    [(1, None, "padding"), (2, 0.7, "before"), (1, None, "before, by the module")],
)
def test_values_and_gradients_are_those_of_pytorch(groups: int, scaling: float | None, seen: str) -> None:
    ours, theirs = _inputs(groups), _inputs(groups)
    mask = _padding() if seen == "padding" else None
    causal = seen.startswith("before")
    given = None if seen == "before, by the module" else causal
    module = _module(groups, is_causal=causal)
    got, _ = attend(module, ours[0], ours[1], ours[2], mask, scaling=scaling, is_causal=given)
    options: dict[str, Any] = {"scale": scaling, "is_causal": causal, "enable_gqa": groups > 1}
    wanted = _exact(theirs[0], theirs[1], theirs[2], mask, **options).transpose(1, 2)
    assert got.shape == (_BATCH, _LENGTH, _HEADS, _WIDTH)
    # Sums of up to 44 products of size 1 to 10, in another order: 1e-6 apart on some processors.
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    weight = torch.randn(got.shape)
    (got * weight).sum().backward()  # type: ignore[no-untyped-call]
    (wanted * weight).sum().backward()  # type: ignore[no-untyped-call]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_as_exact_as_pytorchs() -> None:
    torch.manual_seed(0)
    query, key, value = ((torch.randn(2, 4, 48, 32) * s).bfloat16() for s in (4, 1, 1))
    exact, theirs = (
        _exact(query.to(d), key.to(d), value.to(d)).transpose(1, 2) for d in (torch.float64, torch.bfloat16)
    )
    with torch.autocast("cpu", torch.bfloat16):
        ours, _ = attend(_module(), query, key, value, None)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).norm() < 1.5 * (theirs - exact).norm()


def test_long_texts_go_to_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Mock(return_value=(None, None))
    monkeypatch.setattr(idiomtune.encoder.forward, "sdpa_attention_forward", fused)
    for length, is_fused in ((255, False), (256, False), (257, True)):
        one = torch.randn(1, 2, length, 4)
        with torch.set_grad_enabled(length % 2 == 0):  # a pass without a graph is made alike with one
            attend(_module(), one, one, one, None)
        assert fused.called == is_fused


def test_a_step_is_that_of_sentence_transformers_with_the_same_masks(tiny: Encoder, tiny_path: Path) -> None:
    """Loss and gradients, with dropout in embeddings, attention and layers."""

    def loss(rows: Tensor) -> Tensor:
        return functional.cross_entropy(rows[:2] @ rows[2:].T / 0.05, torch.arange(2))

    texts = ["the ship broke the ice of the harbour", "rain fell all day", "it rained", "no"]  # by length
    torch.manual_seed(7)
    ours = loss(tiny.train()([EmbeddingRequest(text) for text in texts]))
    ours.backward()  # type: ignore[no-untyped-call]
    eager = {"attn_implementation": "eager"}
    plain = SentenceTransformer(str(tiny_path), device="cpu", model_kwargs=eager).train()
    read = dict(plain.tokenizer(texts, padding=True, return_tensors="pt"))
    torch.manual_seed(7)
    theirs = loss(plain(read)["sentence_embedding"])
    theirs.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    gradients = {name: p.grad for name, p in tiny.model.named_parameters() if p.grad is not None}
    assert len(gradients) > 20
    for name, p in plain.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients.pop(name), p.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert not gradients


def test_a_model_uses_the_attention_and_is_saved_without_a_word_of_it(tiny: Encoder, tmp_path: Path) -> None:
    transformer: Any = tiny.transformer
    assert transformer.config._attn_implementation == SHORT_ATTENTION
    tiny.save(tmp_path)
    files = [path for path in tmp_path.rglob("*.*") if path.is_file()]
    assert len(files) > 5
    assert not [file for file in files if SHORT_ATTENTION.encode() in file.read_bytes()]
