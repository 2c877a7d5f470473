"""Attention of short texts on a CPU, against PyTorch's own: values, gradients, and what is saved of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional

import train.encoder.forward
from train.encoder.encoder import Encoder
from train.encoder.forward import attend
from train.requests import Request

_BATCH, _HEADS, _LENGTH, _WIDTH = 3, 4, 11, 8


def _module(groups: int = 1, is_causal: bool = False) -> nn.Module:
    module: Any = nn.Module()
    module.num_key_value_groups, module.is_causal = groups, is_causal
    return module  # type: ignore[no-any-return]


def _inputs(groups: int = 1) -> list[Tensor]:
    torch.manual_seed(5)
    heads = (_HEADS, _HEADS // groups, _HEADS // groups)
    return [torch.randn(_BATCH, count, _LENGTH, _WIDTH, requires_grad=True) for count in heads]


def _padding() -> Tensor:
    mask = torch.ones(_BATCH, 1, _LENGTH, _LENGTH, dtype=torch.bool)
    mask[1, :, :, 7:] = False
    mask[2, :, :, 3:] = False
    return mask


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("scaling", [None, 0.7])
@pytest.mark.parametrize("seen", ["all", "padding", "before", "before, by the module"])
def test_values_and_gradients_are_those_of_pytorch(groups: int, scaling: float | None, seen: str) -> None:
    ours, theirs = _inputs(groups), _inputs(groups)
    mask = _padding() if seen == "padding" else None
    causal = seen.startswith("before")
    got, _ = attend(
        _module(groups, is_causal=causal),
        ours[0],
        ours[1],
        ours[2],
        mask,
        scaling=scaling,
        is_causal=None if seen == "before, by the module" else causal,
    )
    wanted = functional.scaled_dot_product_attention(
        theirs[0],
        theirs[1],
        theirs[2],
        attn_mask=mask,
        scale=scaling,
        is_causal=causal,
        enable_gqa=groups > 1,
    ).transpose(1, 2)
    assert got.shape == (_BATCH, _LENGTH, _HEADS, _WIDTH)
    # Sums of up to 44 products of size 1 to 10, in another order: 1e-6 apart on some processors.
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    weight = torch.randn(got.shape)
    (got * weight).sum().backward()  # type: ignore[no-untyped-call]
    (wanted * weight).sum().backward()  # type: ignore[no-untyped-call]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spread", [1, 4])
def test_bfloat16_is_as_exact_as_pytorchs(spread: int) -> None:
    torch.manual_seed(0)
    query, key, value = ((torch.randn(4, 12, 48, 32) * s).bfloat16() for s in (spread, 1, 1))
    exact, theirs = (
        functional.scaled_dot_product_attention(query.to(d), key.to(d), value.to(d)).transpose(1, 2)
        for d in (torch.float64, torch.bfloat16)
    )
    with torch.autocast("cpu", torch.bfloat16):
        ours, _ = attend(_module(), query, key, value, None)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).norm() < 1.5 * (theirs - exact).norm()


def test_dropout_draws_what_pytorch_draws() -> None:
    query, key, value = _inputs()
    torch.manual_seed(3)
    got, _ = attend(_module(), query, key, value, _padding(), dropout=0.4)
    torch.manual_seed(3)
    wanted = functional.scaled_dot_product_attention(query, key, value, _padding(), dropout_p=0.4)
    torch.testing.assert_close(got, wanted.transpose(1, 2), atol=1e-6, rtol=1e-5)


def test_long_texts_go_to_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Mock(return_value=(None, None))
    monkeypatch.setattr(train.encoder.forward, "sdpa_attention_forward", fused)
    for length, is_fused in ((255, False), (256, False), (257, True)):
        one = torch.randn(1, 2, length, 4)
        with torch.set_grad_enabled(length % 2 == 0):  # a pass without a graph is made alike with one
            attend(_module(), one, one, one, None)
        assert fused.called == is_fused


def test_a_bias_of_positions_is_left_to_the_library() -> None:
    query, key, value = _inputs()
    bias = torch.randn(1, _HEADS, _LENGTH, _LENGTH)
    got, _ = attend(_module(), query, key, value, None, position_bias=bias)
    wanted = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias).transpose(1, 2)
    torch.testing.assert_close(got, wanted)


def test_a_model_uses_it_and_is_saved_without_a_word_of_it(tiny: Encoder, tmp_path: Path) -> None:
    texts = ["He kicked the bucket.", "A short one."]
    transformer: Any = tiny.model[0].auto_model
    assert transformer.config._attn_implementation == "sdpa_short_on_cpu"
    ours = tiny([Request(text=text) for text in texts]).detach()
    tiny.save(tmp_path / "saved")
    for path in (tmp_path / "saved").glob("*.json"):
        assert "sdpa_short_on_cpu" not in path.read_text(encoding="utf-8"), path.name
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    theirs: Any = plain[0].auto_model
    assert theirs.config._attn_implementation == "sdpa"
    torch.testing.assert_close(ours, plain.encode(texts, convert_to_tensor=True), atol=1e-6, rtol=1e-5)
