"""The training loop, read from top to bottom: step, log, evaluate, save, stop."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from train.checkpoint import (
    TrainerState,
    latest_checkpoint,
    load_training_state,
    prune,
    save_checkpoint,
    write_best,
)
from train.encoder import Encoder
from train.errors import UserError
from train.objectives import Batch, Objective
from train.progress import progress_bar
from train.runfolder import RunFolder, write_json
from train.settings import EvalSettings, TrainerSettings
from train.suite import Scorecard, Suite

log = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has saved a checkpoint."""


def train_loop(
    encoder: Encoder,
    objective: Objective,
    suite: Suite,
    accelerator: Accelerator,
    run: RunFolder,
    trainer: TrainerSettings,
    evaluation: EvalSettings,
    *,
    seed: int,
    card: str,
    checkpoint: Path | None = None,
) -> TrainerState:
    """Train until the epochs, the steps or the patience run out; every checkpoint is scored.

    Args:
        checkpoint: to go on from, the folder that `encoder` was loaded from.
        card: the model card of `best/`.

    Returns:
        Where the run ended. `best/` holds the best checkpoint.

    Raises:
        UserError: if the loss or its gradient is not finite, or a checkpoint cannot be saved.
        Interrupted: at SIGINT or SIGTERM, once the step that was going on is saved.
    """
    parameters = [*encoder.parameters(), *objective.modules.parameters()]
    optimizer = accelerator.prepare_optimizer(
        torch.optim.AdamW(parameters, lr=trainer.learning_rate, weight_decay=trainer.weight_decay)
    )
    state = load_training_state(checkpoint, objective.modules, optimizer) if checkpoint else TrainerState()
    steps_per_epoch = len(objective.plan(0, trainer.accumulation))
    total = steps_per_epoch * trainer.max_epochs
    total = min(total, trainer.max_steps) if trainer.max_steps else total
    warmup = num_warmup_steps(trainer, total)
    log.info(
        "%d steps (%d an epoch), %d of them warm-up (%.0f%%)",
        *(total, steps_per_epoch, warmup, 100 * warmup / total),
    )

    epoch_losses: list[float] = []
    epoch_start, epoch_texts = time.perf_counter(), 0
    with stop_requests() as stop_requested, progress_bar("training", total) as advance:
        advance(state.step)
        for shards in remaining_steps(objective, trainer, state, total):
            # ---- one optimizer step
            started, num_texts, step_loss = time.perf_counter(), 0, 0.0
            logs: dict[str, float] = {}
            learning_rate = trainer.learning_rate * schedule(trainer, state.step, warmup, total)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            encoder.train()
            num_anchors = sum(len(anchors) for anchors in shards)
            for micro, anchors in enumerate(shards):
                seed_everything(seed, state.step, micro)
                batch = objective.batch(state.epoch, anchors)
                with accelerator.autocast():
                    embeddings = encoder(batch.requests)
                result = objective.loss(embeddings, batch)
                if not math.isfinite(result.loss.item()):
                    raise not_finite("loss", result.loss.item(), batch, state, run)
                share = len(anchors) / num_anchors
                accelerator.backward(result.loss * share)
                num_texts += len(batch.requests)
                step_loss += result.loss.item() * share
                for name, value in result.logs.items():
                    logs[name] = logs.get(name, 0.0) + value
            limit = trainer.clip_norm if trainer.clip_norm is not None else math.inf
            norm = float(accelerator.clip_grad_norm_(parameters, limit))
            # Under fp16 the gradient scaler skips such a step by itself and lowers its scale.
            if not math.isfinite(norm) and accelerator.scaler is None:
                raise not_finite("gradient norm", norm, batch, state, run)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            state.step += 1
            state.step_in_epoch += 1
            epoch_ends = state.step_in_epoch == steps_per_epoch

            # ---- log
            epoch_losses.append(step_loss)
            epoch_texts += num_texts
            if state.step % trainer.log_every == 0 or state.step == total:
                run.log_metrics(
                    {
                        "step": state.step,
                        "epoch": state.epoch + state.step_in_epoch / steps_per_epoch,
                        "loss": step_loss,
                        "lr": learning_rate,
                        "grad_norm": norm,
                        "texts_per_second": num_texts / (time.perf_counter() - started),
                        **logs,
                    }
                )
            advance(1)
            if epoch_ends:
                state.epoch, state.step_in_epoch = state.epoch + 1, 0

            # ---- evaluate, save, stop
            due = epoch_ends if evaluation.every == "epoch" else state.step % evaluation.every == 0
            if due or state.step == total:
                seconds = time.perf_counter() - epoch_start
                scorecard = suite.run(encoder, only=evaluation.benchmarks)
                improved = update_best(state, scorecard, trainer)
                exhausted = trainer.patience and state.num_without_improvement >= trainer.patience
                if evaluation.benchmarks is not None and (exhausted or state.step == total):
                    scorecard = suite.run(encoder)  # the last is scored in full
                saved = save_checkpoint(
                    run.path, encoder, objective.modules, optimizer, state, scorecard.scores
                )
                if improved:
                    write_best(run.path, saved, card)
                prune(run.path, trainer.keep_checkpoints, state.best_step)
                run.log_metrics({"step": state.step, "epoch": state.epoch, "scores": scorecard.scores})
                log.info(
                    "epoch %.4g, step %d: loss %.4f, %s %.4f%s; %.0f texts/s, scored in %.1f s",
                    state.epoch + state.step_in_epoch / steps_per_epoch,
                    state.step,
                    sum(epoch_losses) / len(epoch_losses),
                    " + ".join(trainer.monitor),
                    monitored(scorecard.scores, trainer),
                    " (best)" if improved else "",
                    epoch_texts / seconds,
                    scorecard.seconds,
                )
                epoch_losses, epoch_texts, epoch_start = [], 0, time.perf_counter()
                if exhausted:
                    log.info("no improvement in %d evaluations: stopping", trainer.patience)
                    break
            if stop_requested():
                save_checkpoint(run.path, encoder, objective.modules, optimizer, state, None)
                raise Interrupted(f"stopped after step {state.step}, which is saved")
    return state


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM set a flag, to be looked at between steps; a second SIGINT stops at once."""
    received: list[int] = []

    def note(number: int, _frame: object) -> None:
        if number in received:
            raise KeyboardInterrupt
        received.append(number)
        log.info("%s: stopping after this step", signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def remaining_steps(
    objective: Objective, trainer: TrainerSettings, state: TrainerState, total: int
) -> Iterator[list[list[int]]]:
    """The steps that are left, from where `state` stands (it moves on while this runs)."""
    while state.step < total:
        steps = objective.plan(state.epoch, trainer.accumulation)
        yield from steps[state.step_in_epoch : state.step_in_epoch + total - state.step]


def seed_everything(seed: int, step: int, micro_step: int) -> None:
    """Make what a micro-step draws (dropout) a function of seed and step, whatever came before."""
    number = int(np.random.SeedSequence([seed, step, micro_step]).generate_state(1)[0])
    torch.manual_seed(number)


def num_warmup_steps(trainer: TrainerSettings, total: int) -> int:
    """`warmup_steps`, else the ratio of all steps, rounded."""
    if trainer.warmup_steps is not None:
        return trainer.warmup_steps
    return round(trainer.warmup_ratio * total)


def schedule(trainer: TrainerSettings, step: int, warmup: int, total: int) -> float:
    """Factor of the peak learning rate after `step` steps (the first step has 0 with a warm-up)."""
    if step < warmup:
        return step / warmup
    if trainer.schedule == "constant":
        return 1.0
    done = (step - warmup) / max(total - warmup, 1)
    return 1.0 - done if trainer.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def monitored(scores: dict[str, float], trainer: TrainerSettings) -> float:
    """The score that picks the best checkpoint: the mean over `trainer.monitor`.

    Raises:
        UserError: if a score is not there (a slice without queries, say).
    """
    for key in trainer.monitor:
        if key not in scores:
            raise UserError(f"trainer.monitor: this data gives no score {key!r}; choose another key")
    return sum(scores[key] for key in trainer.monitor) / len(trainer.monitor)


def update_best(state: TrainerState, scorecard: Scorecard, trainer: TrainerSettings) -> bool:
    """Whether this is the best checkpoint so far; keeps the count for patience."""
    score = monitored(scorecard.scores, trainer)
    if state.patience_score is None or score > state.patience_score + trainer.min_delta:
        state.patience_score, state.num_without_improvement = score, 0
    else:
        state.num_without_improvement += 1
    if state.best_score is not None and score <= state.best_score:
        return False
    state.best_score, state.best_step = score, state.step
    return True


def not_finite(what: str, value: float, batch: Batch, state: TrainerState, run: RunFolder) -> UserError:
    """The error for a loss or gradient that is NaN or infinite, with its batch in a file."""
    path: Path = run.path / "nonfinite_batch.json"
    write_json(
        path,
        {
            "step": state.step + 1,
            "epoch": state.epoch,
            what: str(value),
            "anchors": list(batch.anchors),
            "texts": [request.text for request in batch.requests],
        },
    )
    last = latest_checkpoint(run.path)
    saved = f"the last checkpoint is {last}" if last else "no checkpoint was saved before it"
    shown = ", ".join(batch.anchors[:5]) + (", …" if len(batch.anchors) > 5 else "")
    return UserError(
        f"the {what} is {value} at step {state.step + 1} (epoch {state.epoch + 1}), in the batch of "
        f"{len(batch.anchors)} anchors {shown}\n"
        f"  The whole batch is in {path}; {saved}.\n"
        "  Usual causes: too high a trainer.learning_rate, too low an objective.loss.temperature, "
        "precision=fp16 (try bf16 or fp32)."
    )
