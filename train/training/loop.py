"""The training loop, read from top to bottom: step, log, evaluate, save, stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from accelerate import Accelerator

from train.config import EvalSettings, TrainerSettings
from train.distributed.processes import Processes
from train.distributed.sharding import whole
from train.errors import Interrupted, UserError
from train.evaluation.suite import Suite
from train.io.progress import progress_bar
from train.objectives import Batch, Objective, StepLog
from train.runs.folder import RunFolder
from train.training.checkpoint import (
    TrainerState,
    prune,
    restore_best,
    save_checkpoint,
    write_best,
)
from train.training.early_stopping import monitor_name, monitored, no_best, out_of_patience, update_best
from train.training.failures import not_finite, nothing_mined
from train.training.regularization import Retention
from train.training.schedule import num_warmup_steps, schedule
from train.training.setup import Gradients, begin
from train.training.signals import stop_requests

log = logging.getLogger(__name__)

OnScores = Callable[[dict[str, float]], None]  # may raise train.training.signals.Pruned


def train_loop(
    retention: Retention,
    objective: Objective,
    suite: Suite,
    accelerator: Accelerator,
    processes: Processes,
    run: RunFolder,
    trainer: TrainerSettings,
    evaluation: EvalSettings,
    *,
    seed: int,
    card: str,
    checkpoint: Path | None = None,
    on_saved: Callable[[Path], None] | None = None,
    on_scores: OnScores | None = None,
) -> TrainerState:
    """Train until the epochs, the steps or the patience run out; every checkpoint is scored.

    Args:
        retention: the encoder, and what keeps it near the model that it was.
        processes: all of them run this loop; the main one writes.
        checkpoint: to go on from, the folder that the encoder's weights are from.
        card: the model card of `best/`.
        on_saved: called in the main process with each checkpoint's folder, once it is scored and saved.
        on_scores: gets each evaluation but the last, once its checkpoint is saved.

    Returns:
        Where the run ended. `best/` holds the best checkpoint.

    Raises:
        UserError: if the loss or its gradient is not finite, a checkpoint cannot be saved, or the monitored
            score was not finite at any evaluation.
        Interrupted: at SIGINT or SIGTERM, once the step that was going on is saved.
        Pruned: if `on_scores` does.
    """
    encoder = retention.encoder
    embed, optimizer, state = begin(retention, objective, accelerator, processes, trainer, seed, checkpoint)
    gradients = Gradients(encoder, objective.modules, optimizer, accelerator, processes, trainer.clip_norm)
    steps_per_epoch = len(objective.plan(0, trainer.accumulation))
    total = steps_per_epoch * trainer.max_epochs
    total = min(total, trainer.max_steps) if trainer.max_steps else total
    warmup = num_warmup_steps(trainer, total)
    log.info(
        "%d steps (%d an epoch), %d of them warm-up (%.0f%%)",
        *(total, steps_per_epoch, warmup, 100 * warmup / total),
    )
    if state.step >= total:
        log.info("nothing is left to train: step %d of %d", state.step, total)
    if checkpoint and processes.is_main:  # the run may have been killed once this was saved, before the rest
        if state.best_step is not None:
            restore_best(run.path, state.best_step, card)
        prune(run.path, trainer.keep_checkpoints, state.best_step)

    num_texts, since = 0, time.perf_counter()  # of the last evaluation, or of this start
    undefined: dict[str, float] = {}  # scores of the last evaluation that are not finite

    def score_and_save(*, last: bool) -> None:
        nonlocal num_texts, since, undefined
        seconds = time.perf_counter() - since
        with retention.published():
            scorecard = suite.run(encoder, only=evaluation.benchmarks)
            improved = update_best(state, scorecard.scores | scorecard.undefined, trainer)
            if evaluation.benchmarks is not None and (last or out_of_patience(state, trainer)):
                scorecard = suite.run(encoder)  # the last is scored in full
        undefined = scorecard.undefined
        monitor = monitored(scorecard.scores | undefined, trainer)
        mean_loss = state.loss_sum / max(state.num_losses, 1)
        state.loss_sum, state.num_losses = 0.0, 0
        state.scored_step = state.step

        def save() -> None:
            # Before the checkpoint: a run that is killed in between drops the line when it goes on.
            run.log_metrics({"step": state.step, "epoch": state.epoch, "scores": scorecard.scores})
            saved = save_checkpoint(
                *(run.path, retention, objective.modules, optimizer, state, scorecard.scores),
                record=run.snapshot(),
            )
            if improved:
                write_best(run.path, saved, card)
            prune(run.path, trainer.keep_checkpoints, state.best_step)

        with whole(encoder, optimizer, is_main=processes.is_main):
            processes.from_main(save)
        log.info(
            "epoch %.4g, step %d: loss %.4f, %s %s%s; %.0f texts/s, scored in %.1f s",
            *(state.epoch + state.step_in_epoch / steps_per_epoch, state.step),
            mean_loss,
            *(monitor_name(trainer), "not finite" if monitor is None else f"{monitor:.4f}"),
            " (best)" if improved else "",
            *(num_texts / seconds, scorecard.seconds),
        )
        if on_saved is not None and processes.is_main:
            on_saved(run.path / f"step_{state.step}")
        if on_scores is not None and not last and not out_of_patience(state, trainer):
            on_scores(scorecard.scores)
        num_texts, since = 0, time.perf_counter()

    if checkpoint and state.best_step is None and (state.step >= total or out_of_patience(state, trainer)):
        score_and_save(last=state.step >= total)  # what gave no finite score may have been mended since
    with stop_requests() as stop_requested, progress_bar("training", total) as advance:
        advance(state.step)
        for shards in remaining_steps(objective, trainer, state, total):
            # ---- one optimizer step
            started, step_loss = time.perf_counter(), 0.0
            text_counts: list[int] = []
            batches: list[Batch] = []
            step_log = StepLog()
            is_empty, part = True, ""
            learning_rate = trainer.learning_rate * schedule(trainer, state.step, warmup, total)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * group["share"]
            encoder.train(not trainer.freeze_encoder)
            objective.modules.train()
            num_anchors = sum(len(anchors) for anchors in shards)
            for micro, anchors in enumerate(shards):
                batch = objective.batch(state.epoch, anchors)
                batches.append(batch)
                embeddings = embed(batch.requests, state.step, micro, on_progress=text_counts.append)
                share = len(anchors) / num_anchors
                result = retention.hold(objective.loss(embeddings, batch), embeddings, batch)
                if not math.isfinite(result.loss.item()):
                    raise not_finite("loss", result.loss.item(), [batch], state, run)
                embed.backward(result.loss * share)
                step_loss += result.loss.item() * share
                is_empty, part = is_empty and result.is_empty, result.part or ""
                step_log.add(result)
            state.num_empty[part] = state.num_empty.get(part, 0) + 1 if is_empty else 0
            if state.num_empty[part] >= trainer.max_empty_steps:
                raise nothing_mined(state, part, run)
            norm = gradients.gathered_and_clipped()
            if gradients.are_broken:
                raise not_finite("gradient norm", norm, batches, state, run)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            state.step += 1
            state.step_in_epoch += 1
            state.grad_scale = gradients.scale
            epoch_ends = state.step_in_epoch == steps_per_epoch

            # ---- log
            state.loss_sum += step_loss
            state.num_losses += 1
            num_texts += sum(text_counts)
            if state.step % trainer.log_every == 0 or state.step == total:
                run.log_metrics(
                    {
                        "step": state.step,
                        "epoch": state.epoch + state.step_in_epoch / steps_per_epoch,
                        "loss": step_loss,
                        **({f"{part}/loss": step_loss} if part else {}),
                        "lr": learning_rate,
                        "grad_norm": norm if math.isfinite(norm) else None,
                        "texts_per_second": sum(text_counts) / (time.perf_counter() - started),
                        **step_log.values(),
                    }
                )
            advance(1)
            if epoch_ends:
                state.epoch, state.step_in_epoch = state.epoch + 1, 0

            # ---- evaluate, save, stop
            due = is_due(evaluation.every, state.step, epoch_ends=epoch_ends)
            if due or state.step == total:
                score_and_save(last=state.step == total)
            if processes.any(stop_requested()) and state.step < total:
                if not due:
                    own = run.path, retention, objective.modules, optimizer, state
                    with whole(encoder, optimizer, is_main=processes.is_main):
                        processes.from_main(lambda: save_checkpoint(*own, None, run.snapshot()))  # noqa: B023  at once
                raise Interrupted(f"stopped after step {state.step}, which is saved")
        if state.scored_step != state.step:  # resumed with nothing left to train
            score_and_save(last=True)
    if out_of_patience(state, trainer):
        log.info("no improvement in %d evaluations: stopped", state.num_without_improvement)
    if state.best_step is None:
        raise no_best(undefined, trainer, run.path)
    return state


def is_due(every: str | int, step: int, *, epoch_ends: bool) -> bool:
    """Whether to evaluate after this step; after the last one it is done in any case."""
    if every == "epoch":
        return epoch_ends
    return every != "end" and step % int(every) == 0


def remaining_steps(
    objective: Objective, trainer: TrainerSettings, state: TrainerState, total: int
) -> Iterator[list[list[int]]]:
    """The steps that are left, from where `state` stands (it moves on while this runs)."""
    while state.step < total and not out_of_patience(state, trainer):
        steps = objective.plan(state.epoch, trainer.accumulation)
        if state.step_in_epoch >= len(steps):  # cannot be, as long as the data is the same
            raise UserError(f"epoch {state.epoch + 1} has only {len(steps)} steps; start a new run")
        for step in steps[state.step_in_epoch : state.step_in_epoch + total - state.step]:
            if out_of_patience(state, trainer):  # in the middle of an epoch too, as after a resume
                return
            yield step
