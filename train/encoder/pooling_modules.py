"""The poolings that `model.pooling` names, as modules of sentence-transformers."""

from __future__ import annotations

import re
from typing import Any

import torch
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn

from train.errors import UserError


def pooling_modules(model: Any, tokenizer: Any, dimension: int, pooling: str) -> list[nn.Module]:
    """The modules of a pooling by its name, for a transformer whose hidden states have this dimension.

    `last2` is the mean over tokens of the mean of the last two layers (any number is possible); `cls+sep` the
    sum of the first and the last token; all others are the library's. All are modules of the library, so that
    a saved model pools the same way without our code. The sum is a dense layer [I I] on both tokens side by
    side, which is not trained.

    Raises:
        UserError: if there is no such pooling, or the model cannot have it.
    """
    config: Any = model.config
    if pooling == "cls+sep":
        ids = tokenizer("a")["input_ids"]
        if ids[0] != tokenizer.cls_token_id or ids[-1] != tokenizer.sep_token_id:
            raise UserError("model.pooling=cls+sep: its tokenizer puts no [CLS] and [SEP] around a text")
        total = Dense(2 * dimension, dimension, bias=False, activation_function=nn.Identity())
        eye = torch.eye(dimension, device=model.device)
        total.linear.weight.data = torch.cat([eye, eye], dim=1)
        return [Pooling(dimension, pooling_mode=("cls", "lasttoken")), total.requires_grad_(False)]
    if not (last := re.fullmatch(r"last(\d+)", pooling)):
        if pooling not in Pooling.POOLING_MODES:
            known = ", ".join(("cls+sep", "last2 (any number)", *Pooling.POOLING_MODES))
            raise UserError(f"model.pooling={pooling}: not one of {known}")
        return [Pooling(dimension, pooling_mode=pooling)]
    num_layers, num_mean = config.num_hidden_layers, int(last[1])
    if not 1 <= num_mean <= num_layers:
        raise UserError(f"model.pooling={pooling}: the model has {num_layers} layers")
    # Otherwise the library silently pools the last layer alone.
    config.output_hidden_states = True
    layers = WeightedLayerPooling(
        dimension, num_hidden_layers=num_layers, layer_start=num_layers + 1 - num_mean
    )
    layers.layer_weights.requires_grad_(False)
    return [layers, Pooling(dimension, pooling_mode="mean")]


def is_sum(dense: Dense) -> bool:
    """Whether a dense layer adds up two halves, as that of `cls+sep` does."""
    weight = dense.linear.weight.detach()
    half = weight.shape[0]
    if dense.linear.bias is not None or weight.shape[1] != 2 * half:
        return False
    eye = torch.eye(half, device=weight.device)
    return bool(torch.equal(weight, torch.cat([eye, eye], dim=1)))
