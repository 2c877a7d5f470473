"""How a transformer computes in training on a CPU: attention and dropout.

PyTorch's fused attention is made for long texts. For sentences, its backward pass alone takes 30% of a small
model's training step in bfloat16 (PyTorch 2.13, no dropout; figures in docs/results/speed.md): two plain
matrix products are faster. Dropout draws a byte for each value, no longer number. PyTorch's generator draws
eight bytes at a time, so whatever seeds, saves or restores its state governs these masks as it governs
PyTorch's own: gradient caching and activation checkpointing replay them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHORT_ATTENTION = "sdpa_short_on_cpu"
_BYTE_ATTENTION = f"{SHORT_ATTENTION}_byte_dropout"
_MAX_LENGTH = 256  # tokens: memory grows with their square, and the gain shrinks
_LEVELS = 256  # of a byte


def use_short_attention(transformer: PreTrainedModel) -> None:
    """Make a model on a CPU use this attention instead of PyTorch's; others keep theirs."""
    if transformer.device.type == "cpu" and transformer.config._attn_implementation == "sdpa":
        transformer.set_attn_implementation(SHORT_ATTENTION)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    drop: Callable[[Tensor, float], Tensor] = nn.functional.dropout,
    **others: Any,
) -> tuple[Tensor, None]:
    """The same as transformers' `sdpa_attention_forward`, as exactly; for long texts it is called itself.

    Only the length decides, so that a pass is computed in the same way with and without a graph.

    Args:
        query: (B, H, T, D); `key` and `value` with as many heads or a divisor of H.
        attention_mask: bool (B, 1, T, T), true where a token attends; None: to all, or to earlier ones if
            causal.
        drop: how short texts' weights (B, H, T, T) are dropped, with the probability `dropout`.

    Returns:
        (B, T, H, D).
    """
    length = query.shape[2]
    is_plain = attention_mask is None or attention_mask.dtype == torch.bool
    is_short = length <= _MAX_LENGTH and length == key.shape[2]
    if not is_short or not is_plain or others.get("position_bias") is not None:
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    if attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        attention_mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):  # scores in float32, as the fused kernel has them
        scores = (query.float() * scale) @ key.float().transpose(2, 3)
        if attention_mask is not None:
            unseen = torch.zeros_like(attention_mask, dtype=scores.dtype)
            scores = scores + unseen.masked_fill_(~attention_mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).to(value.dtype)
        if dropout:  # not 0 in training only
            weights = drop(weights, dropout)
        return (weights @ value).transpose(1, 2).contiguous(), None


def use_byte_dropout(model: nn.Module, transformer: Any) -> None:
    """Draw eight-bit masks in all `nn.Dropout` of a model on a CPU, and in the attention of short texts.

    Other attention, and dropout that a model calls as a function, keep PyTorch's. Nothing of it is saved.

    Args:
        model: whose modules are changed in place.
        transformer: its transformer, a `PreTrainedModel`.
    """
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = ByteDropout
    if transformer.config._attn_implementation == SHORT_ATTENTION:
        transformer.set_attn_implementation(_BYTE_ATTENTION)


class ByteDropout(nn.Dropout):
    """`nn.Dropout` by :func:`byte_dropout`; never in place."""

    def forward(self, input: Tensor) -> Tensor:
        """The input with some values zeroed in training; itself in evaluation."""
        return byte_dropout(input, self.p) if self.training else input


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Zero each value with probability q, which is p rounded to 1/256; scale the others by 1 / (1 - q).

    Where p rounds to 0 or 1, and on other devices, PyTorch's own dropout is used.

    Args:
        x: any shape; float32 or bfloat16.
    """
    threshold = round(_LEVELS * p)
    if x.device.type != "cpu" or not 0 < threshold < _LEVELS:
        return nn.functional.dropout(x, p)
    dropped: Tensor = _ByteDropout.apply(x, random_bytes(x.shape), threshold)  # type: ignore[no-untyped-call]
    return dropped


def random_bytes(shape: torch.Size) -> Tensor:
    """Uniform uint8 of this shape, from PyTorch's generator."""
    size = shape.numel()
    words = torch.empty(-(-size // 8), dtype=torch.int64).random_(-(2**63), None)  # by default 63 bits
    return words.view(torch.uint8)[:size].view(shape)


class _ByteDropout(torch.autograd.Function):
    """Keeps of the forward pass a byte a value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drawn: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(drawn)
        ctx.threshold = threshold
        return _mask(x, drawn, threshold)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (drawn,) = ctx.saved_tensors
        return _mask(gradient, drawn, ctx.threshold), None, None


def _mask(x: Tensor, drawn: Tensor, threshold: int) -> Tensor:
    """x where `drawn` is not below the threshold, scaled; else 0."""
    # Not as booleans, which PyTorch compares, converts and multiplies several times as slowly on a CPU.
    mask = torch.ge(drawn, threshold, out=torch.empty(x.shape, dtype=x.dtype))
    return torch.addcmul(x.new_zeros(()), x, mask, value=_LEVELS / (_LEVELS - threshold))


for _name, _attend in ((SHORT_ATTENTION, attend), (_BYTE_ATTENTION, partial(attend, drop=byte_dropout))):
    AttentionInterface.register(_name, _attend)
    AttentionMaskInterface.register(_name, sdpa_mask)
