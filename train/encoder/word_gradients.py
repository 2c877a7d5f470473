"""Gradients of word embeddings on a CPU: of the words of a forward batch, not of the whole vocabulary.

PyTorch's gradient of an embedding matrix is a matrix of its size, zeroed anew for each forward batch and
added to the last. With 30,000 words and short forward batches that is much of what a step does beside matrix
products (figures in docs/results/speed.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def add_word_gradients_in_place(transformer: Any) -> None:
    """Make a transformer's word embeddings add the gradient of each batch to `weight.grad` themselves.

    The sums are the same, bit for bit. Autograd sees no gradient of the weights, so hooks on them are not
    called, and `torch.autograd.grad` finds none: this is for training by `backward` alone, of weights that
    are whole in this process.

    Args:
        transformer: a `PreTrainedModel` on a CPU; its module is changed in place, and saved as before.
    """
    module = transformer.get_input_embeddings()
    if type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
        module.__class__ = WordEmbedding


class WordEmbedding(nn.Embedding):
    """`nn.Embedding` that adds its gradient in place in training."""

    def forward(self, input: Tensor) -> Tensor:
        """The vectors of words, as those of `nn.Embedding`."""
        if not (self.training and self.weight.requires_grad and torch.is_grad_enabled()):
            return super().forward(input)
        vectors: Tensor = _Lookup.apply(self.weight, input, self.padding_idx)  # type: ignore[no-untyped-call]
        return vectors


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, words: Tensor, padding: int | None) -> Tensor:
        ctx.weight, ctx.words, ctx.padding = weight, words, padding
        return nn.functional.embedding(words, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        weight, words, gradient = ctx.weight, ctx.words.flatten(), gradient.flatten(end_dim=-2)
        if ctx.padding is not None:
            is_word = words != ctx.padding
            words, gradient = words[is_word], gradient[is_word]
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        # First the batch's own sums, so that the result is what autograd's is, to the last bit.
        distinct, place = words.unique(return_inverse=True)
        sums = gradient.new_zeros(len(distinct), weight.shape[1]).index_add_(0, place, gradient)  # (W, D)
        weight.grad.index_add_(0, distinct, sums)
        return None, None, None
