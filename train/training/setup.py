"""Setting up a training, new or resumed: embedder, optimizer, gradients, progress."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn

from train.config import TrainerSettings
from train.distributed.processes import Processes
from train.distributed.sharding import shard
from train.encoder.idiom_token_embeddings import IdiomTokenRows
from train.encoder.kernels import use_byte_dropout
from train.objectives import Batch, Objective, PartlyPretrained
from train.training.checkpoint import TrainerState, load_training_state
from train.training.context import TrainingContext
from train.training.embedder import Embedder, FrozenEmbedder, TrainableEmbedder
from train.training.schedule import RunLength

log = logging.getLogger(__name__)

_MAX_SKIPPED = 20  # steps in a row whose gradient overflowed, under fp16


@dataclass(frozen=True)
class Training:
    """A training in progress.

    Attributes:
        embed: embeds a step's requests.
        optimizer: of all trained parameters.
        gradients: of these parameters.
        length: of the run, in steps.
        state: the run's progress, which the loop updates.
    """

    embed: Embedder
    optimizer: AcceleratedOptimizer
    gradients: Gradients
    length: RunLength
    state: TrainerState


def setup_training(context: TrainingContext, checkpoint: Path | None = None) -> Training:
    """A training at its start, or at the checkpoint; the same in all processes."""
    encoder, objective, trainer = context.encoder, context.objective, context.trainer
    processes, accelerator = context.processes, context.accelerator
    if trainer.activation_checkpointing:
        encoder.checkpoint_activations()
    if trainer.dropout_masks == "bytes" and encoder.device.type == "cpu":
        use_byte_dropout(encoder, encoder.transformer)
    processes.same_parameters(encoder)
    if processes.sharding is not None and (trainer.freeze_encoder or trainer.only_idiom_tokens):
        log.info("little or nothing of the encoder is trained, so it is not sharded")
    elif processes.sharding is not None:
        shard(encoder, encoder.transformer, processes.sharding, processes.count)
    embed: TrainableEmbedder | FrozenEmbedder
    if trainer.freeze_encoder:
        embed = FrozenEmbedder(encoder, accelerator, processes)
    else:
        caching = trainer.gradient_caching
        embed = TrainableEmbedder(encoder, accelerator, processes, seed=context.seed, caching=caching)
    optimizer = _build_optimizer(context)
    state = load_training_state(checkpoint, objective.modules, optimizer) if checkpoint else TrainerState()
    if accelerator.scaler is not None and state.grad_scale is not None:
        accelerator.scaler.load_state_dict(accelerator.scaler.state_dict() | {"scale": state.grad_scale})
    processes.same_parameters(objective.modules)
    if isinstance(embed, FrozenEmbedder):
        embed.embed_past(_past_batches(objective, trainer, state))
    gradients = Gradients(encoder, objective.modules, optimizer, accelerator, processes, trainer.clip_norm)
    length = RunLength.of(trainer, steps_per_epoch=len(objective.epoch_steps(0, trainer.accumulation)))
    return Training(embed, optimizer, gradients, length, state)


def _build_optimizer(context: TrainingContext) -> AcceleratedOptimizer:
    trainer, encoder = context.trainer, context.encoder
    if trainer.only_idiom_tokens:
        IdiomTokenRows(encoder, "trainer.only_idiom_tokens=true").train_alone()
    groups = parameter_groups(encoder, context.objective.modules, trainer)
    optimizer = torch.optim.AdamW(
        groups,
        lr=trainer.learning_rate,
        weight_decay=trainer.weight_decay,
        # One pass over the weights instead of nine; PyTorch chooses for itself on a GPU alone.
        fused=True if any(p.device.type == "cpu" for p in encoder.parameters()) else None,
    )
    if trainer.idiom_tokens_learning_rate is not None:
        rows = IdiomTokenRows(
            encoder, f"trainer.idiom_tokens_learning_rate={trainer.idiom_tokens_learning_rate}"
        )
        rows.scale_steps(optimizer, trainer.idiom_tokens_learning_rate / trainer.learning_rate)
    return context.accelerator.prepare_optimizer(optimizer)


class Gradients:
    """The gradients of a step: summed over the processes, checked, clipped.

    Attributes:
        overflowed: the step's gradient is not finite. Under fp16, where the gradient scaler skips such steps
            and lowers its scale, it is set only after many of them in a row.
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
        self._max_norm = math.inf if clip_norm is None else clip_norm
        self._num_skipped = 0
        self.overflowed = False

    def reduce_and_clip(self) -> float:
        """Reduce over the processes, then clip; returns the norm before clipping."""
        self._processes.sum_gradients(self._encoder.parameters())
        self._processes.sum_gradients(self._modules.parameters(), divide=True)
        norm = float(self._accelerator.clip_grad_norm_(self._parameters, self._max_norm))
        self._num_skipped = 0 if math.isfinite(norm) else self._num_skipped + 1
        max_skipped = 0 if self._accelerator.scaler is None else _MAX_SKIPPED
        self.overflowed = self._num_skipped > max_skipped
        return norm

    @property
    def scale(self) -> float | None:
        """The scale of the gradient scaler, under fp16."""
        scaler: torch.amp.GradScaler | None = self._accelerator.scaler
        return None if scaler is None else scaler.get_scale()


def parameter_groups(
    encoder: nn.Module, modules: nn.Module, trainer: TrainerSettings
) -> list[dict[str, Any]]:
    """The trained parameters, grouped by learning rate, which is `lr_scale` times that of the encoder.

    New parameters of an objective's modules have the modules' rate, their pretrained ones the encoder's.
    What `trainer.no_decay` names is in groups of its own.
    """
    modules_rate = trainer.modules_learning_rate
    modules_scale = 1.0 if modules_rate is None else modules_rate / trainer.learning_rate
    parts = [module.pretrained for module in modules.modules() if isinstance(module, PartlyPretrained)]
    pretrained = [p for module in (encoder, *parts) for p in module.parameters()]
    ids = {id(p) for p in pretrained}
    new = [p for p in modules.parameters() if id(p) not in ids]
    undecayed = {id(p) for root in (encoder, modules) for p in _undecayed(root, trainer.no_decay)}
    groups: list[dict[str, Any]] = []
    for parameters, lr_scale in ((pretrained, 1.0), (new, modules_scale)):
        trained = [p for p in parameters if p.requires_grad]
        decayed = [p for p in trained if id(p) not in undecayed]
        rest = [p for p in trained if id(p) in undecayed]
        groups.append({"params": decayed, "lr_scale": lr_scale})
        groups.append({"params": rest, "lr_scale": lr_scale, "weight_decay": 0.0})
    if trainer.only_idiom_tokens:  # other tokens' embeddings, in the same matrix, must not decay
        groups[0]["weight_decay"] = 0.0
    return [group for group in groups if group["params"]]


def _undecayed(root: nn.Module, kinds: Collection[str]) -> Iterator[nn.Parameter]:
    """Its biases (`bias`), and weights and biases of its normalisation layers (`norm`)."""
    for module in root.modules():
        is_norm = "norm" in type(module).__name__.lower()
        for name, parameter in module.named_parameters(recurse=False):
            if ("norm" in kinds and is_norm) or ("bias" in kinds and name.endswith("bias")):
                yield parameter


def _past_batches(objective: Objective, trainer: TrainerSettings, state: TrainerState) -> Iterator[Batch]:
    """The batches of the steps before `state`, in order."""
    for epoch in range(state.epoch + 1):
        steps = objective.epoch_steps(epoch, trainer.accumulation)
        for step in steps if epoch < state.epoch else steps[: state.step_in_epoch]:
            for anchors in step:
                yield objective.batch(epoch, anchors)
