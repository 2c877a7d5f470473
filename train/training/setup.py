"""A training in progress: embedder, optimizer, gradients, progress."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn

from train.config import TrainerSettings, TrainSettings
from train.distributed.device import Placement
from train.distributed.processes import Processes
from train.distributed.sharding import shard
from train.encoder.encoder import Encoder
from train.encoder.idiom_token_embeddings import IdiomTokenRows
from train.encoder.kernels import use_byte_dropout
from train.evaluation.suite import Suite
from train.objectives import Batch, Objective, PartlyPretrained
from train.runs.folder import RunFolder
from train.training.checkpoint import TrainerState, load_training_state
from train.training.embedder import Embedder, FrozenEmbedder, TrainableEmbedder
from train.training.regularization import Retention
from train.training.schedule import RunLength

log = logging.getLogger(__name__)

_MAX_SKIPPED = 20  # steps in a row whose gradient overflowed, under fp16


@dataclass(frozen=True)
class RunContext:
    """What all parts of a run share.

    Attributes:
        settings: the checked configuration.
        run: its folder, claimed and with a record.
        placement: device and precision.
        accelerator: the same, for training.
        processes: of the launch; all train, the main one writes.
    """

    settings: TrainSettings
    run: RunFolder
    placement: Placement
    accelerator: Accelerator
    processes: Processes


OnScores = Callable[[dict[str, float]], None]  # may raise train.errors.Pruned
OnSaved = Callable[[Path], None]


@dataclass
class Training:
    """A training, new or resumed: its parts, and its state, which the loop updates.

    All processes have the same one.

    Attributes:
        context: what all parts of the run share.
        retention: the encoder that is trained, with the remedies against forgetting.
        objective: data, batches and loss.
        suite: the benchmarks for checkpoints.
        card: the model card of `best/`.
        checkpoint: the folder to resume from; the encoder already has its weights.
        usages: sentences that the gate of the meanings is fitted to, and whether they are idiomatic.
        on_saved: called in the main process with each checkpoint's folder, once it is scored and saved.
        on_scores: called with the scores of each evaluation except the last, once its checkpoint is saved.
        embed: embeds a step's requests.
        optimizer: of all trained parameters.
        length: of the run, in steps.
        state: the run's progress.
        num_texts: texts trained on since the last evaluation (or the start), for the log.
        undefined: scores of the last evaluation that were not finite, by key.
        since: when the last evaluation ended, or the training began.
    """

    context: RunContext
    retention: Retention
    objective: Objective
    suite: Suite
    card: str
    checkpoint: Path | None = None
    usages: Sequence[tuple[str, bool]] = ()
    on_saved: OnSaved | None = None
    on_scores: OnScores | None = None
    embed: Embedder = field(init=False)
    optimizer: AcceleratedOptimizer = field(init=False)
    length: RunLength = field(init=False)
    state: TrainerState = field(init=False)
    num_texts: int = 0
    undefined: Mapping[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.settings, self.run = self.context.settings, self.context.run
        self.processes, self.accelerator = self.context.processes, self.context.accelerator
        self.trainer, self.encoder = self.settings.trainer, self.retention.encoder
        self._num_skipped = 0
        encoder, objective, trainer = self.encoder, self.objective, self.trainer
        _prepare(encoder, trainer, self.processes)
        if trainer.freeze_encoder:
            self.embed = FrozenEmbedder(encoder, self.accelerator, self.processes)
        else:
            self.embed = TrainableEmbedder(
                *(encoder, self.accelerator, self.processes),
                seed=self.settings.seed,
                caching=trainer.gradient_caching,
            )
        optimizer = _build_optimizer(encoder, objective.modules, trainer)
        self.optimizer = self.accelerator.prepare_optimizer(optimizer)
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.state = TrainerState()
        if self.checkpoint is not None:
            self.state = load_training_state(self.checkpoint, objective.modules, self.optimizer)
        scaler, scale = self.accelerator.scaler, self.state.grad_scale
        if scaler is not None and scale is not None:
            scaler.load_state_dict(scaler.state_dict() | {"scale": scale})
        self.processes.same_parameters(objective.modules)
        if isinstance(self.embed, FrozenEmbedder):
            self.embed.embed_past(_past_batches(objective, trainer, self.state))
        steps_per_epoch = len(objective.epoch_steps(0, trainer.accumulation))
        self.length = RunLength.of(trainer, steps_per_epoch=steps_per_epoch)

    def reduce_and_clip(self) -> tuple[float, bool]:
        """Sum the step's gradients over the processes, then clip them.

        Returns:
            The norm before clipping, and whether the training must end because it is not finite. Under fp16,
            where the gradient scaler skips such steps and lowers its scale, it must after many in a row.
        """
        self.processes.sum_gradients(self.encoder.parameters())
        self.processes.sum_gradients(self.objective.modules.parameters(), divide=True)
        max_norm = math.inf if self.trainer.clip_norm is None else self.trainer.clip_norm
        norm = float(self.accelerator.clip_grad_norm_(self._parameters, max_norm))
        self._num_skipped = 0 if math.isfinite(norm) else self._num_skipped + 1
        return norm, self._num_skipped > (0 if self.accelerator.scaler is None else _MAX_SKIPPED)


def _prepare(encoder: Encoder, trainer: TrainerSettings, processes: Processes) -> None:
    """Give the encoder its options of training, and each process its part of the weights."""
    if trainer.activation_checkpointing:
        encoder.checkpoint_activations()
    if trainer.dropout_masks == "bytes" and encoder.device.type == "cpu":
        use_byte_dropout(encoder, encoder.transformer)
    processes.same_parameters(encoder)
    if processes.sharding is not None and (trainer.freeze_encoder or trainer.only_idiom_tokens):
        log.info("little or nothing of the encoder is trained, so it is not sharded")
    elif processes.sharding is not None:
        shard(encoder, encoder.transformer, processes.sharding, processes.count)


def _build_optimizer(encoder: Encoder, modules: nn.Module, trainer: TrainerSettings) -> torch.optim.AdamW:
    if trainer.only_idiom_tokens:
        IdiomTokenRows(encoder, "trainer.only_idiom_tokens=true").train_alone()
    optimizer = torch.optim.AdamW(
        parameter_groups(encoder, modules, trainer),
        lr=trainer.learning_rate,
        weight_decay=trainer.weight_decay,
        # One pass over the weights instead of nine; PyTorch chooses for itself on a GPU alone.
        fused=True if any(p.device.type == "cpu" for p in encoder.parameters()) else None,
    )
    if (rate := trainer.idiom_tokens_learning_rate) is not None:
        rows = IdiomTokenRows(encoder, f"trainer.idiom_tokens_learning_rate={rate}")
        rows.scale_steps(optimizer, rate / trainer.learning_rate)
    return optimizer


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
