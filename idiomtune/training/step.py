"""The trainer, and one optimizer step: embed, loss, backward; then clip and update."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from idiomtune.benchmarks.suite import Suite
from idiomtune.config import TrainerSettings
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.encoder.sharding import shard
from idiomtune.encoder.trained_parts import checkpoint_activations
from idiomtune.errors import UserError
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.io.files import write_json
from idiomtune.io.processes import Processes
from idiomtune.io.run_files import OBJECTIVE, OPTIMIZER
from idiomtune.objectives import Batch, Objective, ObjectiveLoss, StepLog, matryoshka_loss
from idiomtune.objectives.mixture import in_section
from idiomtune.plugins.score import ScoreTable
from idiomtune.requests import LabelledUse
from idiomtune.training.checkpoint import TrainerState, last_saved, read_state
from idiomtune.training.embedder import FrozenEmbedder, TrainableEmbedder
from idiomtune.training.forgetting import Remedies
from idiomtune.training.invariants import check_labels, check_resumed, state_sums
from idiomtune.training.optimizer import build_optimizer, build_scheduler, restore_optimizer, schedule
from idiomtune.training.run_folder import RunFolder

log = logging.getLogger(__name__)


_NUM_LABELLED = 10  # steps of an epoch whose labels are checked: in most mixtures each part has one
_MAX_SKIPPED = 20  # steps in a row whose gradient overflowed, under fp16

OnScore = Callable[[float | None], None]  # None = not finite; may raise idiomtune.errors.Pruned
OnSaved = Callable[[Path], None]


@dataclass
class Trainer:
    """What trains, in a new run or a resumed one: its parts, and its state, which the loop updates.

    All processes have the same one.

    Attributes:
        run: its folder, claimed and with a record.
        accelerator: for device and precision.
        processes: of the launch; all train, the main one writes.
        settings: the recipe.
        remedies: the encoder that is trained, with the remedies against forgetting.
        objective: data, batches and loss.
        suite: the benchmarks for checkpoints.
        seed: with the epoch and the step, it decides everything that is drawn.
        score_every: `epoch`, or a number of steps, after which it is scored and saved; `end`: only then.
        scored: names of the benchmarks for checkpoints; None = all.
        dropout: whether there is any.
        card: the model card of `best/`.
        checkpoint: the folder to resume from; the encoder already has its weights.
        usages: sentences that the gate of the meanings is fitted to.
        on_saved: called in the main process with each checkpoint's folder, once it is scored and saved.
        on_score: called with the monitored score of each evaluation except the last, once it is saved.
        embed: embeds a step's requests.
        optimizer, scheduler: of all trained parameters.
        steps_per_epoch, num_steps: of an epoch, and in all.
        state: the run's progress.
        undefined: scores of the last evaluation that were not finite, by key.
    """

    run: RunFolder
    accelerator: Accelerator
    processes: Processes
    settings: TrainerSettings
    remedies: Remedies
    objective: Objective
    suite: Suite
    seed: int
    score_every: Literal["epoch", "end"] | int = "epoch"
    scored: Sequence[str] | None = None
    dropout: bool = True
    card: str = ""
    checkpoint: Path | None = None
    usages: Sequence[LabelledUse] = ()
    on_saved: OnSaved | None = None
    on_score: OnScore | None = None
    embed: TrainableEmbedder | FrozenEmbedder = field(init=False)
    optimizer: AcceleratedOptimizer = field(init=False)
    state: TrainerState = field(default_factory=TrainerState, init=False)
    undefined: ScoreTable = field(default_factory=ScoreTable, init=False)

    def __post_init__(self) -> None:
        self.encoder = self.remedies.encoder
        self._num_skipped = 0
        settings, objective = self.settings, self.objective
        self.steps_per_epoch = len(objective.epoch_steps(0, settings.accumulation))
        num_steps = self.steps_per_epoch * settings.max_epochs
        self.num_steps = min(num_steps, settings.max_steps) if settings.max_steps else num_steps
        self._prepare_encoder()
        parts = self.encoder, self.accelerator, self.processes
        if settings.freeze_encoder:
            self.embed = FrozenEmbedder(*parts)
        else:
            self.embed = TrainableEmbedder(*parts, self.seed, caching=settings.gradient_caching)
        optimizer = build_optimizer(self.encoder, objective.head, settings)
        self.optimizer = self.accelerator.prepare_optimizer(optimizer)
        if self.checkpoint is not None:
            self._load(self.checkpoint)
        self.scheduler = build_scheduler(optimizer, settings, self.state.step, self.num_steps)
        self.processes.same_parameters(objective.head)
        if settings.freeze_encoder:
            self._embed_past()

    def _prepare_encoder(self) -> None:
        """Set the encoder's training options, and shard its weights."""
        encoder, settings, processes = self.encoder, self.settings, self.processes
        if settings.activation_checkpointing:
            checkpoint_activations(encoder.transformer)
        processes.same_parameters(encoder)
        if processes.sharding is not None and (settings.freeze_encoder or settings.only_idiom_tokens):
            log.info("little or nothing of the encoder is trained, so it is not sharded")
        elif processes.sharding is not None:
            shard(encoder, encoder.transformer, processes.sharding, processes.count)

    def _load(self, checkpoint: Path) -> None:
        """Restore progress, optimizer and the objective's modules; the encoder already has its weights."""
        if (checkpoint / OBJECTIVE).is_file():
            self.objective.head.load_state_dict(load_file(checkpoint / OBJECTIVE))
        restore_optimizer(self.optimizer, load_file(checkpoint / OPTIMIZER))
        self.state = read_state(checkpoint)
        if (scaler := self.accelerator.scaler) is not None and self.state.grad_scale is not None:
            scaler.load_state_dict(scaler.state_dict() | {"scale": self.state.grad_scale})
        check_resumed(self.state, self.sums(), self.objective, self.settings.accumulation)

    def sums(self) -> tuple[float, ...]:
        """Checksums of what is trained and of the optimizer's state."""
        return state_sums((self.encoder, self.objective.head), self.optimizer)

    def _embed_past(self) -> None:
        """Embed what a resumed run embedded before, in the same forward batches.

        By rounding, a text's embedding depends on the other texts of its forward batch.
        """
        for epoch in range(self.state.epoch + 1):
            steps = self.objective.epoch_steps(epoch, self.settings.accumulation)
            for step in steps if epoch < self.state.epoch else steps[: self.state.step_in_epoch]:
                for anchors in step:
                    self.embed(self.objective.batch(epoch, anchors).requests, 0)

    def loss(self, rows: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of embeddings (R, D): the objective's, plus distillation and matryoshka terms."""
        result = matryoshka_loss(self.objective, rows, batch, self.settings.matryoshka or ())
        return self.remedies.add_distillation(result, rows, batch)

    def reduce_and_clip(self) -> tuple[float, bool]:
        """Sum the step's gradients over the processes, then clip them.

        Returns:
            The norm before clipping, and whether the training must end because it is not finite. Under fp16,
            where the gradient scaler skips such steps and lowers its scale, it must after many in a row.
        """
        self.processes.sum_gradients(self.encoder.parameters())
        # Each process computed these from the whole batch.
        self.processes.sum_gradients(self.objective.head.parameters(), divide=True)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        max_norm = math.inf if self.settings.clip_norm is None else self.settings.clip_norm
        norm = float(self.accelerator.clip_grad_norm_(parameters, max_norm))
        self._num_skipped = 0 if math.isfinite(norm) else self._num_skipped + 1
        return norm, self._num_skipped > (0 if self.accelerator.scaler is None else _MAX_SKIPPED)


def take_step(trainer: Trainer, micro_batches: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Take one optimizer step, and update `trainer.state`.

    Args:
        micro_batches: the anchors of each micro-step, by number.

    Returns:
        The step's line in `metrics.jsonl`. Its loss is the mean over the step's anchors, its gradient norm
        that before clipping, its speed that of all processes.

    Raises:
        UserError: if the loss or its gradient is not finite, or too many steps had nothing to learn from.
    """
    started = time.perf_counter()
    objective, settings, state = trainer.objective, trainer.settings, trainer.state
    trainer.encoder.train(trainer.dropout)
    objective.head.train()

    loss, num_texts, is_empty, part, reason = 0.0, 0, True, "", ""
    batches: list[Batch] = []
    step_log = StepLog()
    num_anchors = sum(len(anchors) for anchors in micro_batches)
    for micro, anchors in enumerate(micro_batches):
        batch = objective.batch(state.epoch, anchors)
        batches.append(batch)
        if state.step_in_epoch < _NUM_LABELLED:
            check_labels(batch)
        batch_weight = len(anchors) / num_anchors
        result, num_embedded = compute_gradients(trainer, batch, micro, batch_weight)
        value = result.loss.item()
        if not math.isfinite(value):
            raise _not_finite("loss", value, [batch], trainer)
        loss += value * batch_weight
        num_texts += num_embedded
        is_empty = is_empty and result.is_empty
        part, reason = result.part or "", batch.skip_reason or reason
        step_log.add(result)

    state.num_empty[part] = state.num_empty.get(part, 0) + 1 if is_empty else 0
    section = objective.parts[part].section if part in objective.parts else "objective"
    reason = in_section(reason, section)
    if state.num_empty[part] >= settings.max_empty_steps:
        raise _empty_step_error(part, section, reason, trainer)
    grad_norm, is_invalid = trainer.reduce_and_clip()
    if is_empty or grad_norm == 0:
        reason = reason or f"{section}: {'nothing was mined' if is_empty else 'no gradient'}"
        state.empty_steps[reason] = state.empty_steps.get(reason, 0) + 1
    if is_invalid:
        raise _not_finite("gradient norm", grad_norm, batches, trainer)
    trainer.optimizer.step()
    trainer.scheduler.step()
    trainer.optimizer.zero_grad(set_to_none=True)

    if state.step_in_epoch == 0:  # the mean that is logged is of one epoch at most
        state.loss_sum, state.num_losses = 0.0, 0
    state.step += 1
    state.step_in_epoch += 1
    state.grad_scale = scaler.get_scale() if (scaler := trainer.accelerator.scaler) else None
    state.loss_sum += loss
    state.num_losses += 1
    return {
        "step": state.step,
        "epoch": state.epoch + state.step_in_epoch / trainer.steps_per_epoch,
        "loss": loss,
        **({f"{part}/loss": loss} if part else {}),
        "lr": settings.learning_rate * schedule(settings, state.step - 1, trainer.num_steps),
        "grad_norm": grad_norm if math.isfinite(grad_norm) else None,
        "texts_per_second": num_texts / (time.perf_counter() - started),
        **({"empty_steps": sum(state.empty_steps.values())} if state.empty_steps else {}),
        **step_log.values(),
    }


def compute_gradients(
    trainer: Trainer, batch: Batch, micro: int = 0, weight: float = 1.0
) -> tuple[ObjectiveLoss, int]:
    """The forward and the backward pass of one micro-step; gradients accumulate.

    Args:
        micro: number of the micro-step in its step.
        weight: of its loss in the step's.

    Returns:
        The loss, and how many texts went through the encoder, in all processes.
    """
    embedded = trainer.embed(batch.requests, trainer.state.step, micro)
    result = trainer.loss(embedded.rows, batch)
    embedded.backward(result.loss * weight)
    return result, embedded.num_texts


def _not_finite(quantity: str, value: float, batches: Sequence[Batch], trainer: Trainer) -> UserError:
    """The error for a loss or gradient that is not finite; its batches are written to a file."""
    state, run = trainer.state, trainer.run
    path = run.path / "nonfinite_batch.json"
    anchors = [anchor for batch in batches for anchor in batch.anchors]
    texts = [request.text for batch in batches for request in batch.requests]
    position = {"step": state.step + 1, "epoch": state.epoch}
    if run.writes:
        write_json(path, {**position, quantity: str(value), "anchors": anchors, "texts": texts})
    layer = None if trainer.processes.count > 1 else _first_not_finite(trainer.encoder, batches[0])
    return UserError(
        f"the {quantity} is {value} at step {state.step + 1} (epoch {state.epoch + 1}), in the batch of "
        f"{len(anchors)} anchors {', '.join(anchors[:5])}{', …' if len(anchors) > 5 else ''}\n"
        + (f"  The first layer that gives NaN or infinity for these texts: {layer}.\n" if layer else "")
        + f"  The complete batch is in {path}. {last_saved(run.path)}.\n"
        f"  Usual causes: too high a learning rate (it is {trainer.settings.learning_rate:g}), too low a "
        "temperature of the loss, precision=fp16 (try bf16 or fp32)."
    )


def _first_not_finite(encoder: GlossaryEncoder, batch: Batch) -> str | None:
    """The first layer whose output for a batch's texts is NaN or infinite, without dropout."""
    names = {module: name for name, module in encoder.named_modules() if not any(module.children())}
    layers: list[str] = []

    def look(module: nn.Module, _inputs: object, output: object) -> None:
        tensors = output.values() if isinstance(output, dict) else [output]
        if module in names and any(isinstance(t, Tensor) and not t.isfinite().all() for t in tensors):
            layers.append(names[module])

    hook = register_module_forward_hook(look)
    try:
        with torch.no_grad(), evaluation_mode(encoder):
            for requests in encoder.forward_batches(batch.requests)[:1]:
                encoder.embed(requests)
    finally:
        hook.remove()
    return next(iter(layers), None)


def _empty_step_error(part: str, section: str, reason: str, trainer: Trainer) -> UserError:
    """The error for a loss and gradient that were zero in many steps in a row.

    Args:
        part: the part of a mixture; "" for other objectives.
        section: where the options of its loss are.
        reason: of the last step, if known; else no triplet was mined.
    """
    state = trainer.state
    reason = reason or (
        "no triplet was mined. If all keep the margin, nothing is left to learn: end the run with "
        f"trainer.max_steps, or raise the loss's mining_margin, or choose other triplets (in {section})"
    )
    return UserError(
        f"nothing was learned in {state.num_empty[part]} steps {f'of {part} ' if part else ''}in a row, up "
        f"to step {state.step + 1}: the objective's loss and its gradient are zero.\n"
        f"  - {reason}\n"
        "  - or allow more such steps: trainer.max_empty_steps\n"
        f"  {last_saved(trainer.run.path)}."
    )
