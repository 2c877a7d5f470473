"""Dropout on a CPU with eight-bit masks: a byte is drawn for each value, no longer number.

PyTorch's generator draws eight bytes at a time, so whatever seeds, saves or restores its state governs these
masks as it governs PyTorch's own: gradient caching and activation checkpointing replay them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from train.encoder.attention import SHORT_ATTENTION, attend

_BYTE_ATTENTION = f"{SHORT_ATTENTION}_byte_dropout"
_LEVELS = 256


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
    kept = torch.ge(drawn, threshold, out=torch.empty(x.shape, dtype=x.dtype))
    return torch.addcmul(x.new_zeros(()), x, kept, value=_LEVELS / (_LEVELS - threshold))


AttentionInterface.register(_BYTE_ATTENTION, partial(attend, drop=byte_dropout))
AttentionMaskInterface.register(_BYTE_ATTENTION, sdpa_mask)
