"""What a training starts with, new or resumed: what embeds, the optimizer, and where the run stands."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn

from train.config import TrainerSettings
from train.distributed.processes import Processes
from train.distributed.sharding import shard
from train.encoder.idiom_token_embeddings import TokenRows
from train.objectives import Batch, Objective, PartlyPretrained
from train.training.checkpoint import TrainerState, load_training_state
from train.training.embedder import TrainedEmbeddings
from train.training.frozen import FrozenEmbeddings
from train.training.regularization import Retention

log = logging.getLogger(__name__)

_MAX_SKIPPED = 20  # steps in a row whose gradient overflowed, under fp16


def begin(
    retention: Retention,
    objective: Objective,
    accelerator: Accelerator,
    processes: Processes,
    trainer: TrainerSettings,
    seed: int,
    checkpoint: Path | None,
) -> tuple[TrainedEmbeddings | FrozenEmbeddings, AcceleratedOptimizer, TrainerState]:
    """Everything as it was at the checkpoint, or as a run starts; the same in all processes."""
    encoder = retention.encoder
    if trainer.activation_checkpointing:
        encoder.checkpoint_activations()
    processes.same_parameters(encoder)
    if processes.sharding is not None and (trainer.freeze_encoder or trainer.only_idiom_tokens):
        log.info("little or nothing of the encoder is trained: every process holds it whole")
    elif processes.sharding is not None:
        shard(encoder, encoder.transformer, processes.sharding, processes.count)
    embed: TrainedEmbeddings | FrozenEmbeddings
    if trainer.freeze_encoder:
        embed = FrozenEmbeddings(encoder, accelerator, processes)
    else:
        caching = trainer.gradient_caching
        embed = TrainedEmbeddings(encoder, accelerator, processes, seed=seed, caching=caching)
    if trainer.only_idiom_tokens:
        TokenRows(encoder, "trainer.only_idiom_tokens=true").train_alone()
    groups = parameter_groups(encoder, objective.modules, trainer)
    inner = torch.optim.AdamW(groups, lr=trainer.learning_rate, weight_decay=trainer.weight_decay)
    if trainer.idiom_tokens_learning_rate is not None:
        rows = TokenRows(encoder, f"trainer.idiom_tokens_learning_rate={trainer.idiom_tokens_learning_rate}")
        rows.scale_steps(inner, trainer.idiom_tokens_learning_rate / trainer.learning_rate)
    optimizer = accelerator.prepare_optimizer(inner)
    state = load_training_state(checkpoint, objective.modules, optimizer) if checkpoint else TrainerState()
    if accelerator.scaler is not None and state.grad_scale is not None:
        accelerator.scaler.load_state_dict(accelerator.scaler.state_dict() | {"scale": state.grad_scale})
    processes.same_parameters(objective.modules)
    if isinstance(embed, FrozenEmbeddings):
        embed.catch_up(_past_batches(objective, trainer, state))
    return embed, optimizer, state


class Gradients:
    """A step's gradients: added up over the processes, looked at, clipped.

    Attributes:
        are_broken: not finite; under fp16, in many steps in a row: such a step is left out by the gradient
            scaler, which lowers its scale.
    """

    def __init__(
        self,
        encoder: nn.Module,
        modules: nn.Module,
        optimizer: AcceleratedOptimizer,
        accelerator: Accelerator,
        processes: Processes,
        clip_norm: float | None,
    ) -> None:
        self._encoder = encoder
        self._modules = modules
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._accelerator = accelerator
        self._processes = processes
        self._limit = math.inf if clip_norm is None else clip_norm
        self._num_skipped = 0
        self.are_broken = False

    def gathered_and_clipped(self) -> float:
        """The gradient's norm before it was clipped."""
        self._processes.sum_gradients(self._encoder.parameters())
        self._processes.sum_gradients(self._modules.parameters(), divide=True)
        norm = float(self._accelerator.clip_grad_norm_(self._parameters, self._limit))
        self._num_skipped = 0 if math.isfinite(norm) else self._num_skipped + 1
        limit = 0 if self._accelerator.scaler is None else _MAX_SKIPPED
        self.are_broken = self._num_skipped > limit
        return norm

    @property
    def scale(self) -> float | None:
        """Of the gradient scaler, under fp16."""
        scaler: torch.amp.GradScaler | None = self._accelerator.scaler
        return None if scaler is None else scaler.get_scale()


def parameter_groups(
    encoder: nn.Module, modules: nn.Module, trainer: TrainerSettings
) -> list[dict[str, Any]]:
    """What is trained: the encoder's, then the objective's own; `share` is of the learning rate.

    What an objective starts from nothing has its own learning rate, what it brings along the encoder's.
    """
    own = trainer.modules_learning_rate
    share = 1.0 if own is None else own / trainer.learning_rate
    parts = [module.pretrained for module in modules.modules() if isinstance(module, PartlyPretrained)]
    known = [p for module in (encoder, *parts) for p in module.parameters()]
    ids = {id(p) for p in known}
    new = [p for p in modules.parameters() if id(p) not in ids]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in of_group if p.requires_grad], "share": of_rate}
        for of_group, of_rate in ((known, 1.0), (new, share))
    ]
    if trainer.only_idiom_tokens:  # the other words' vectors, in the same matrix, are to stay as they are
        groups[0]["weight_decay"] = 0.0
    return [group for group in groups if group["params"]]


def _past_batches(objective: Objective, trainer: TrainerSettings, state: TrainerState) -> Iterator[Batch]:
    """The batches of the steps before `state`, in their order."""
    for epoch in range(state.epoch + 1):
        steps = objective.plan(epoch, trainer.accumulation)
        for step in steps if epoch < state.epoch else steps[: state.step_in_epoch]:
            for anchors in step:
                yield objective.batch(epoch, anchors)
