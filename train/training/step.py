"""One optimizer step: embed, loss, backward for each micro-step; then clip and update."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.errors import UserError
from train.io.files import write_json
from train.objectives import Batch, ObjectiveLoss, StepLog
from train.objectives.matryoshka import matryoshka_loss
from train.objectives.mixture import MixtureObjective, in_section
from train.runs.folder import RunFolder
from train.training.checkpoint import TrainerState, last_saved
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


def take_step(training: Training, micro_batches: Sequence[Sequence[int]]) -> StepResult:
    """Take one optimizer step, and update `training.state`.

    Args:
        micro_batches: the anchors of each micro-step, by number.

    Raises:
        UserError: if the loss or its gradient is not finite, or too many steps had nothing to learn from.
    """
    started = time.perf_counter()
    objective, trainer, state = training.objective, training.trainer, training.state
    learning_rate = _set_learning_rate(training)
    training.encoder.train(not trainer.freeze_encoder)
    objective.modules.train()

    loss, num_texts, is_empty, part, why = 0.0, 0, True, "", ""
    batches: list[Batch] = []
    step_log = StepLog()
    num_anchors = sum(len(anchors) for anchors in micro_batches)
    for micro, anchors in enumerate(micro_batches):
        batch = objective.batch(state.epoch, anchors)
        batches.append(batch)
        batch_weight = len(anchors) / num_anchors
        result, num_embedded = compute_gradients(training, batch, micro, batch_weight)
        value = result.loss.item()
        if not math.isfinite(value):
            raise _not_finite("loss", value, [batch], state, training.run)
        loss += value * batch_weight
        num_texts += num_embedded
        is_empty = is_empty and result.is_empty
        part, why = result.part or "", batch.empty_because or why
        step_log.add(result)

    is_empty = is_empty and training.retention.teacher is None
    state.num_empty[part] = state.num_empty.get(part, 0) + 1 if is_empty else 0
    section = objective.sections[part] if isinstance(objective, MixtureObjective) else "objective"
    if state.num_empty[part] >= trainer.max_empty_steps:
        raise _nothing_learnt(state, part, section, in_section(why, section), training.run)
    grad_norm, is_invalid = training.reduce_and_clip()
    if is_empty or grad_norm == 0:
        why = in_section(why, section) or f"{section}: {'nothing was mined' if is_empty else 'no gradient'}"
        state.empty_steps[why] = state.empty_steps.get(why, 0) + 1
    if is_invalid:
        raise _not_finite("gradient norm", grad_norm, batches, state, training.run)
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)

    state.step += 1
    state.step_in_epoch += 1
    state.grad_scale = scaler.get_scale() if (scaler := training.accelerator.scaler) else None
    state.loss_sum += loss
    state.num_losses += 1
    seconds = time.perf_counter() - started
    return StepResult(loss, learning_rate, grad_norm, num_texts, seconds, part, step_log.values())


def compute_gradients(
    training: Training, batch: Batch, micro: int = 0, weight: float = 1.0
) -> tuple[ObjectiveLoss, int]:
    """The forward and the backward pass of one micro-step, whose gradients are added to those that are there.

    Args:
        micro: number of the micro-step in its step.
        weight: of its loss in the step's.

    Returns:
        The loss, and how many texts went through the encoder, in all processes.
    """
    objective, trainer = training.objective, training.trainer
    embedded = training.embed(batch.requests, training.state.step, micro)
    result = matryoshka_loss(
        objective, embedded.rows, batch, trainer.matryoshka or (), trainer.matryoshka_weights
    )
    result = training.retention.add_distillation(result, embedded.rows, batch)
    embedded.backward(result.loss * weight)
    return result, embedded.num_texts


def _set_learning_rate(training: Training) -> float:
    """Give each parameter group its rate in this step; returns the encoder's."""
    trainer, length = training.trainer, training.length
    factor = schedule(trainer, training.state.step, length.warmup, length.total)
    learning_rate = trainer.learning_rate * factor
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
    return learning_rate


def _not_finite(
    what: str, value: float, batches: Sequence[Batch], state: TrainerState, run: RunFolder
) -> UserError:
    """The error for a loss or gradient that is not finite; its batches are written to a file."""
    path = run.path / "nonfinite_batch.json"
    anchors = [anchor for batch in batches for anchor in batch.anchors]
    texts = [request.text for batch in batches for request in batch.requests]
    where = {"step": state.step + 1, "epoch": state.epoch}
    if run.writes:
        write_json(path, {**where, what: str(value), "anchors": anchors, "texts": texts})
    shown = ", ".join(anchors[:5]) + (", …" if len(anchors) > 5 else "")
    return UserError(
        f"the {what} is {value} at step {state.step + 1} (epoch {state.epoch + 1}), in the batch of "
        f"{len(anchors)} anchors {shown}\n"
        f"  The whole batch is in {path}. {last_saved(run.path)}.\n"
        "  Usual causes: too high a trainer.learning_rate, too low an objective.loss.temperature, "
        "precision=fp16 (try bf16 or fp32)."
    )


def _nothing_learnt(state: TrainerState, part: str, section: str, why: str, run: RunFolder) -> UserError:
    """The error for a loss and gradient that were zero in many steps in a row.

    Args:
        part: the part of a mixture; "" for other objectives.
        section: where the options of its loss are.
        why: of the last step, where it is known; else no triplet was mined.
    """
    why = why or (
        "no triplet was mined. Where all keep the margin, nothing is left to learn: end the run with "
        f"trainer.max_steps, or raise the loss's mining_margin, or choose other triplets (in {section})"
    )
    return UserError(
        f"nothing was learnt in {state.num_empty[part]} steps {f'of {part} ' if part else ''}in a row, up to "
        f"step {state.step + 1}: the objective's loss and its gradient are zero.\n"
        f"  - {why}\n"
        "  - or allow more such steps: trainer.max_empty_steps\n"
        f"  {last_saved(run.path)}."
    )
