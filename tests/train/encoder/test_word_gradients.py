"""Gradients of word embeddings: autograd's own, and no matrix of the whole vocabulary for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from train.encoder.encoder import Encoder
from train.encoder.word_gradients import WordEmbedding, add_word_gradients_in_place
from train.requests import Request

_BATCHES = [["the ship broke the ice of the harbour", "no"], ["rain fell on the rain"], ["no ice", "no"]]


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the shapes that are computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[torch.Size] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.shapes.append(result.shape)
        return result


def _backward(encoder: Encoder, texts: Sequence[str]) -> None:
    torch.manual_seed(0)  # of dropout
    # Raw states, so that padding has a gradient too.
    tokens = encoder.model.tokenizer(list(texts), padding=True, return_tensors="pt")
    encoder.transformer(**tokens).last_hidden_state.square().mean().backward()
    encoder([Request(text) for text in texts]).sin().sum().backward()


def _gradients(encoder: Encoder) -> dict[str, Tensor]:
    encoder.zero_grad()
    for texts in _BATCHES:
        _backward(encoder, texts)
    return {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def test_gradients_are_those_of_autograd_to_the_bit(tiny: Encoder) -> None:
    """Of several batches, with words that come twice and padding, whose own vector has no gradient."""
    expected = _gradients(tiny.train())
    add_word_gradients_in_place(tiny.transformer)
    module = tiny.transformer.get_input_embeddings()  # type: ignore[operator]
    assert type(module) is WordEmbedding
    found = _gradients(tiny)
    assert module.weight.grad is not None
    assert not module.weight.grad[module.padding_idx].any()
    assert module.weight.grad.any()
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name


def test_after_the_first_batch_nothing_is_as_large_as_the_vocabulary(tiny: Encoder) -> None:
    shape = tiny.transformer.get_input_embeddings().weight.shape  # type: ignore[operator]
    tiny.train()
    for in_place in (False, True):
        if in_place:
            add_word_gradients_in_place(tiny.transformer)
        _backward(tiny, _BATCHES[0])
        with _Sizes() as sizes:
            _backward(tiny, _BATCHES[1])
        assert len(sizes.shapes) > 100
        # The gradient itself is what `index_add_` returns, once for each of the two passes.
        assert (sizes.shapes.count(shape) == 2) == in_place


def test_frozen_words_have_no_gradient_and_scoring_is_as_before(tiny: Encoder) -> None:
    texts = ["He kicked the bucket.", "A short one."]
    before = tiny.encode(texts)
    add_word_gradients_in_place(tiny.transformer)
    assert torch.equal(tiny.encode(texts), before)
    weight = tiny.transformer.get_input_embeddings().weight.requires_grad_(False)  # type: ignore[operator]
    _backward(tiny.train(), texts)
    assert weight.grad is None
