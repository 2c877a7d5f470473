"""Attention of short texts on a CPU: two plain matrix products, where PyTorch's fused kernel is slow.

The fused kernel is made for long texts. For sentences, its backward pass alone takes 30% of a small model's
training step in bfloat16 (PyTorch 2.13, no dropout; figures in docs/results/speed.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHORT_ATTENTION = "sdpa_short_on_cpu"
_MAX_LENGTH = 256  # tokens: memory grows with their square, and the gain shrinks


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
    if (
        length > _MAX_LENGTH
        or length != key.shape[2]
        or not is_plain
        or others.get("position_bias") is not None
    ):
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **others,
        )
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


AttentionInterface.register(SHORT_ATTENTION, attend)
AttentionMaskInterface.register(SHORT_ATTENTION, sdpa_mask)
