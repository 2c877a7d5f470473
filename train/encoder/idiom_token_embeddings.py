"""The embeddings of idiom tokens in training: with their own learning rate, or as all that is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from train.distributed.sharding import local_shard, shard_like
from train.encoder.encoder import Encoder
from train.errors import UserError


class IdiomTokenRows:
    """The rows of the token embedding matrix that belong to idiom tokens.

    A new token occurs in few sentences: at the encoder's learning rate it hardly moves in a run.

    Args:
        encoder: with idiom tokens.

    Raises:
        UserError: if it has none; the message names `option`.
    """

    def __init__(self, encoder: Encoder, option: str) -> None:
        if encoder.idiom_tokens is None:
            raise UserError(
                f"{option}: the model has no idiom tokens; model.idiom_tokens=train gives it some, or leave "
                f"the option out ({option.partition('=')[0]}=null or false)"
            )
        embedder: Any = encoder.model[0]
        self._encoder = encoder
        self._weight: nn.Parameter = embedder.auto_model.get_input_embeddings().weight
        vocabulary = embedder.tokenizer.get_vocab()
        ids = sorted(vocabulary[token] for token in encoder.idiom_tokens.expressions)
        self._is_idiom_token = torch.zeros(len(self._weight), 1, dtype=torch.bool, device=self._weight.device)
        self._is_idiom_token[torch.tensor(ids, device=self._weight.device)] = True
        self._before: Tensor | None = None

    def train_alone(self) -> None:
        """Train these rows only: nothing else of the encoder gets a gradient from now on."""
        self._encoder.requires_grad_(False)
        self._weight.requires_grad_(True)
        is_other = ~self._is_idiom_token
        self._weight.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: gradient.masked_fill(is_other, 0.0)
        )

    def scale_steps(self, optimizer: torch.optim.Optimizer, factor: float) -> None:
        """Multiply the steps of these rows by a factor.

        AdamW's step, decay included, is proportional to its learning rate, so this multiplies their learning
        rate.
        """
        in_this_process = local_shard(shard_like(self._is_idiom_token, self._weight))  # (rows here, 1)
        rows = in_this_process[:, 0].nonzero()[:, 0]

        def before(*_: Any) -> None:
            self._before = local_shard(self._weight)[rows]

        def after(*_: Any) -> None:
            assert self._before is not None
            weight = local_shard(self._weight)
            weight[rows] = self._before + factor * (weight[rows] - self._before)

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
