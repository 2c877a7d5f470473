"""Knowledge in a model's weights: they are trained until sentences embed as a teacher embeds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from train.encoder.encoder import Encoder
from train.errors import UserError
from train.requests import Request

_BATCH_SIZE = 64
_WARMUP = 0.1
_MAX_NORM = 1.0
_EPOCH = "epoch"  # how many are done


@dataclass(frozen=True)
class WeightTeaching:
    """How weights are taught.

    Attributes:
        epochs: passes over the requests.
        learning_rate: of AdamW at its highest: it rises over a tenth of the steps, then falls to 0.
        autocast: what the encoder computes in, if not in float32.
        seed: of the order of the requests.
    """

    epochs: int
    learning_rate: float
    autocast: AbstractContextManager[object] = field(default_factory=nullcontext)
    seed: int = 0


def distil_into_weights(
    encoder: Encoder,
    requests: Sequence[Request],
    goal: Tensor,
    teaching: WeightTeaching,
    tensors: dict[str, Tensor],
    keep: Callable[[], None],
    advance: Callable[[int], object],
) -> None:
    """Train the encoder, without dropout, by 1 - cosine.

    Token embeddings stay as they are, and so does what is frozen already, such as the mean of some layers.

    Args:
        requests: N of them.
        goal: (N, D), what each is to embed as.
        tensors: what an interrupted start of the same has kept, or nothing; filled after each epoch, then
            kept. Goes on to the same bits.
        keep: writes `tensors`.
        advance: told how many requests are done.

    Raises:
        UserError: if a gradient is not finite.
    """
    encoder.eval()
    embedder: Any = encoder.model[0]
    embedder.auto_model.get_input_embeddings().requires_grad_(False)
    weights = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=teaching.learning_rate, weight_decay=0.0)
    steps_per_epoch = -(-len(requests) // _BATCH_SIZE)
    num_steps = steps_per_epoch * teaching.epochs
    warmup = max(1, round(_WARMUP * num_steps))
    first = _restore(weights, optimizer, tensors, steps_per_epoch)
    advance(first * len(requests))
    goal = goal.to(encoder.device)
    for epoch in range(first, teaching.epochs):
        generator = torch.Generator().manual_seed(teaching.seed + epoch)
        order = torch.randperm(len(requests), generator=generator)
        for number, rows in enumerate(torch.split(order, _BATCH_SIZE)):
            step = epoch * steps_per_epoch + number
            share = min((step + 1) / warmup, (num_steps - step) / max(1, num_steps - warmup), 1.0)
            optimizer.param_groups[0]["lr"] = teaching.learning_rate * share
            with teaching.autocast:
                embeddings = encoder([requests[row] for row in rows.tolist()])  # (B, D)
            loss = 1 - cosine_similarity(embeddings.float(), goal[rows.to(goal.device)]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(weights.values(), _MAX_NORM)
            if not norm.isfinite():
                raise UserError(
                    f"the gradient norm is {norm.item()} in epoch {epoch + 1}. Usual causes: too high a "
                    f"learning_rate (it is {teaching.learning_rate:g}), or a model with weights that are not "
                    "finite. Start again with another output="
                )
            optimizer.step()
            advance(len(rows))
        _collect(weights, optimizer, tensors, epoch + 1)
        keep()
    encoder.requires_grad_(False)


def _collect(
    weights: dict[str, nn.Parameter], optimizer: torch.optim.AdamW, tensors: dict[str, Tensor], epoch: int
) -> None:
    tensors[_EPOCH] = torch.tensor(epoch)
    for name, weight in weights.items():
        if not (state := optimizer.state.get(weight)):  # without a gradient: nothing uses it
            continue
        tensors[f"weight/{name}"] = weight.detach().cpu().clone()
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"{moment}/{name}"] = state[moment].cpu().clone()


def _restore(
    weights: dict[str, nn.Parameter],
    optimizer: torch.optim.AdamW,
    tensors: dict[str, Tensor],
    steps_per_epoch: int,
) -> int:
    """The number of epochs that are done."""
    if _EPOCH not in tensors:
        return 0
    epoch = int(tensors[_EPOCH])
    for name, weight in weights.items():
        if f"weight/{name}" not in tensors:
            continue
        with torch.no_grad():
            weight.copy_(tensors[f"weight/{name}"])
        optimizer.state[weight] = {
            "step": torch.tensor(float(epoch * steps_per_epoch)),
            **{
                moment: tensors[f"{moment}/{name}"].to(weight.device, copy=True)
                for moment in ("exp_avg", "exp_avg_sq")
            },
        }
    return epoch
