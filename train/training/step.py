"""One optimizer step: embed, loss, backward for each micro-step; then clip and update."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.objectives import Batch, ObjectiveLoss, StepLog
from train.objectives.matryoshka import matryoshka_loss
from train.objectives.mixture import MixtureObjective, in_section
from train.training.context import TrainingContext
from train.training.failures import not_finite, nothing_learnt
from train.training.schedule import schedule
from train.training.setup import Training


@dataclass(frozen=True)
class StepResult:
    """What is logged of a step.

    Attributes:
        loss: mean over the step's anchors.
        learning_rate: of the encoder.
        grad_norm: before clipping; not finite in a step that the gradient scaler skips.
        num_texts: texts that went through the encoder, in all processes.
        seconds: wall time.
        part: of a mixture, the part that the step trained; else "".
        logged: counts and means of the objective, by name.
    """

    loss: float
    learning_rate: float
    grad_norm: float
    num_texts: int
    seconds: float
    part: str
    logged: Mapping[str, float | None]


def take_step(
    context: TrainingContext, training: Training, micro_batches: Sequence[Sequence[int]]
) -> StepResult:
    """Take one optimizer step, and update `training.state`.

    Args:
        micro_batches: the anchors of each micro-step, by number.

    Raises:
        UserError: if the loss or its gradient is not finite, or too many steps had nothing to learn from.
    """
    started = time.perf_counter()
    objective, trainer = context.objective, context.trainer
    state, gradients = training.state, training.gradients
    learning_rate = _set_learning_rate(context, training)
    context.encoder.train(not trainer.freeze_encoder)
    objective.modules.train()

    loss, num_texts, is_empty, part, why = 0.0, 0, True, "", ""
    batches: list[Batch] = []
    step_log = StepLog()
    num_anchors = sum(len(anchors) for anchors in micro_batches)
    for micro, anchors in enumerate(micro_batches):
        batch = objective.batch(state.epoch, anchors)
        batches.append(batch)
        batch_weight = len(anchors) / num_anchors
        result, num_embedded = compute_gradients(context, training, batch, micro, batch_weight)
        value = result.loss.item()
        if not math.isfinite(value):
            raise not_finite("loss", value, [batch], state, context.run)
        loss += value * batch_weight
        num_texts += num_embedded
        is_empty = is_empty and result.is_empty
        part, why = result.part or "", batch.empty_because or why
        step_log.add(result)

    is_empty = is_empty and context.retention.teacher is None
    state.num_empty[part] = state.num_empty.get(part, 0) + 1 if is_empty else 0
    section = objective.sections[part] if isinstance(objective, MixtureObjective) else "objective"
    if state.num_empty[part] >= trainer.max_empty_steps:
        raise nothing_learnt(state, part, section, in_section(why, section), context.run)
    grad_norm = gradients.reduce_and_clip()
    if is_empty or grad_norm == 0:
        why = in_section(why, section) or f"{section}: {'nothing was mined' if is_empty else 'no gradient'}"
        state.empty_steps[why] = state.empty_steps.get(why, 0) + 1
    if gradients.overflowed:
        raise not_finite("gradient norm", grad_norm, batches, state, context.run)
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)

    state.step += 1
    state.step_in_epoch += 1
    state.grad_scale = gradients.scale
    state.loss_sum += loss
    state.num_losses += 1
    seconds = time.perf_counter() - started
    return StepResult(loss, learning_rate, grad_norm, num_texts, seconds, part, step_log.values())


def compute_gradients(
    context: TrainingContext, training: Training, batch: Batch, micro: int = 0, weight: float = 1.0
) -> tuple[ObjectiveLoss, int]:
    """The forward and the backward pass of one micro-step, whose gradients are added to those that are there.

    Args:
        micro: number of the micro-step in its step.
        weight: of its loss in the step's.

    Returns:
        The loss, and how many texts went through the encoder, in all processes.
    """
    objective, trainer = context.objective, context.trainer
    embedded = training.embed(batch.requests, training.state.step, micro)
    result = matryoshka_loss(
        objective, embedded.rows, batch, trainer.matryoshka or (), trainer.matryoshka_weights
    )
    result = context.retention.add_distillation(result, embedded.rows, batch)
    embedded.backward(result.loss * weight)
    return result, embedded.num_texts


def _set_learning_rate(context: TrainingContext, training: Training) -> float:
    """Give each parameter group its rate in this step; returns the encoder's."""
    trainer, length = context.trainer, training.length
    factor = schedule(trainer, training.state.step, length.warmup, length.total)
    learning_rate = trainer.learning_rate * factor
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
    return learning_rate
