"""The training loop, read from top to bottom: step, log, evaluate, save, stop."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path

from train.config import TrainerSettings
from train.errors import Interrupted, UserError
from train.io.progress import progress_bar
from train.objectives import Objective
from train.training.checkpoint import TrainerState, prune, restore_best
from train.training.early_stopping import no_best, out_of_patience
from train.training.memory import is_tried, try_longest_batch
from train.training.scoring import save, score_and_save
from train.training.setup import Training
from train.training.signals import stop_requests
from train.training.step import StepResult, take_step

log = logging.getLogger(__name__)


def train_loop(training: Training) -> TrainerState:
    """Train until the epochs, the steps or the patience run out; every checkpoint is scored.

    All processes run this loop.

    Returns:
        Where the run ended. `best/` holds the best checkpoint.

    Raises:
        UserError: if the loss or its gradient is not finite, a checkpoint cannot be saved, or the monitored
            score was not finite at any evaluation.
        RuntimeError: if memory does not suffice.
        Interrupted: at SIGINT or SIGTERM, once the current step is finished and saved.
        Pruned: if `training.on_scores` does.
    """
    state, length, trainer = training.state, training.length, training.trainer
    log.info(
        "%d steps (%d an epoch), %d of them warm-up (%.0f%%)",
        length.total,
        length.steps_per_epoch,
        length.warmup,
        100 * length.warmup / length.total,
    )
    if state.step >= length.total:
        log.info("no steps are left to train: step %d of %d", state.step, length.total)
    if training.checkpoint is not None and training.processes.is_main:
        _finish_save(training, training.checkpoint)
    has_ended = state.step >= length.total or out_of_patience(state, trainer)
    if is_tried(training) and not has_ended:
        try_longest_batch(training)
    if training.checkpoint is not None and has_ended and state.best_step is None:
        # By now a score may be finite.
        score_and_save(training, last=state.step >= length.total)

    with stop_requests() as stop_requested, progress_bar("training", length.total, state.step) as advance:
        for micro_batches in remaining_steps(training.objective, trainer, state, length.total):
            # ---- step
            result = take_step(training, micro_batches)
            is_last = state.step == length.total

            # ---- log
            training.num_texts += result.num_texts
            if is_last or state.step % trainer.log_every == 0:
                _log_step(training, result)
            advance(1, note=_standing(result))
            epoch_ends = state.step_in_epoch == length.steps_per_epoch
            if epoch_ends:
                state.epoch, state.step_in_epoch = state.epoch + 1, 0

            # ---- evaluate and save
            due = is_due(training.settings.eval.every, state.step, epoch_ends=epoch_ends)
            if due or is_last:
                score_and_save(training, last=is_last)

            # ---- stop
            if training.processes.any(stop_requested()) and not is_last:
                if not due:
                    save(training, None)
                raise Interrupted(f"stopped after step {state.step}, which is saved")
        if state.scored_step != state.step:  # resumed with nothing left to train
            score_and_save(training, last=True)
    if out_of_patience(state, trainer):
        log.info("no improvement in %d evaluations: stopped", state.num_without_improvement)
    if state.best_step is None:
        raise no_best(training.undefined, trainer, training.run.path)
    return state


def _finish_save(training: Training, checkpoint: Path) -> None:
    """Do what follows a save, in case the run was killed in between."""
    run, best_step = training.run.path, training.state.best_step
    if best_step is not None:
        restore_best(run, checkpoint, training.card)
    prune(run, training.trainer.keep_checkpoints, best_step)


def _standing(result: StepResult) -> str:
    """As `loss 0.2384, lr 1.9e-05, 96 texts/s`."""
    texts_per_second = result.num_texts / result.seconds
    return f"loss {result.loss:.4f}, lr {result.learning_rate:.1e}, {texts_per_second:.0f} texts/s"


def _log_step(training: Training, result: StepResult) -> None:
    state = training.state
    training.run.log_metrics(
        {
            "step": state.step,
            "epoch": state.epoch + state.step_in_epoch / training.length.steps_per_epoch,
            "loss": result.loss,
            **({f"{result.part}/loss": result.loss} if result.part else {}),
            "lr": result.learning_rate,
            "grad_norm": result.grad_norm if math.isfinite(result.grad_norm) else None,
            "texts_per_second": result.num_texts / result.seconds,
            **({"empty_steps": sum(state.empty_steps.values())} if state.empty_steps else {}),
            **result.logged,
        }
    )


def is_due(every: str | int, step: int, *, epoch_ends: bool) -> bool:
    """Whether to evaluate after this step; the last step is evaluated in any case."""
    if every == "epoch":
        return epoch_ends
    return every != "end" and step % int(every) == 0


def remaining_steps(
    objective: Objective, trainer: TrainerSettings, state: TrainerState, total: int
) -> Iterator[list[list[int]]]:
    """The remaining steps, from `state` on (which the loop advances between them).

    Yields:
        The anchors of each micro-step, by number.
    """
    while state.step < total and not out_of_patience(state, trainer):
        steps = objective.epoch_steps(state.epoch, trainer.accumulation)
        if state.step_in_epoch >= len(steps):  # impossible with the same data
            raise UserError(f"epoch {state.epoch + 1} has only {len(steps)} steps; start a new run")
        for step in steps[state.step_in_epoch : state.step_in_epoch + total - state.step]:
            if out_of_patience(state, trainer):  # also in the middle of an epoch, as after resuming
                return
            yield step
