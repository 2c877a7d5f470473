"""The training loop, read from top to bottom: step, log, score, save, stop; the choice of the best."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from safetensors.torch import save_file

from idiomtune.config import TrainerSettings
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.encoder.sharding import full_state
from idiomtune.errors import Interrupted, UserError, resume_command
from idiomtune.glossaries.usage_gate import enough_usages, fit_gate
from idiomtune.io.files import as_os_errors
from idiomtune.io.hub import first_line
from idiomtune.io.run_files import OBJECTIVE, OPTIMIZER, checkpoints
from idiomtune.io.terminal import progress_bar
from idiomtune.objectives import Batch, SavesFiles
from idiomtune.plugins.score import ScoreTable
from idiomtune.training.checkpoint import TrainerState, finish_save, new_checkpoint, prune, write_best
from idiomtune.training.interrupts import is_out_of_memory, stop_requests
from idiomtune.training.invariants import check_plan, plan_digest
from idiomtune.training.optimizer import num_warmup_steps, optimizer_tensors
from idiomtune.training.step import Trainer, compute_gradients, take_step

log = logging.getLogger(__name__)

_MAX_DRAWN = 1000  # batches of an epoch, evenly spread, of which the longest is tried


def train_loop(trainer: Trainer) -> TrainerState:
    """Train until the epochs, the steps or the patience run out; every checkpoint is scored.

    All processes run this loop.

    Returns:
        Where the run ended. `best/` holds the best checkpoint.

    Raises:
        UserError: if the loss or its gradient is not finite, a checkpoint cannot be saved, or the monitored
            score was not finite at any evaluation.
        RuntimeError: if memory does not suffice.
        Interrupted: at SIGINT or SIGTERM, once the current step is finished and saved.
        Pruned: if `trainer.on_score` does.
    """
    state, settings, total = trainer.state, trainer.settings, trainer.num_steps
    warmup, per_epoch = num_warmup_steps(settings, total), trainer.steps_per_epoch
    share = 100 * warmup / total
    log.info("%d steps (%d an epoch), %d of them warm-up (%.0f%%)", total, per_epoch, warmup, share)
    if state.step >= total:
        log.info("no steps are left to train: step %d of %d", state.step, total)
    has_ended = state.step >= total or has_no_patience(state, settings)
    if trainer.checkpoint is not None and trainer.processes.is_main:
        finish_save(trainer.run.path, state.best_step, settings.keep_checkpoints, trainer.card)
    if trainer.checkpoint is not None and has_ended and state.best_step is None:
        score_and_save(trainer, last=state.step >= total)  # by now a score may be finite
    if not has_ended and tries_longest_batch(trainer):
        _try_longest_batch(trainer)

    with stop_requests() as stop_requested, progress_bar("training", total, state.step) as advance:
        for micro_batches in _remaining_steps(trainer):
            # ---- step
            record = take_step(trainer, micro_batches)
            is_last = state.step == total

            # ---- log
            if is_last or state.step % settings.log_every == 0:
                trainer.run.log_metrics(record)
            advance(1, note="loss {loss:.4f}, lr {lr:.1e}, {texts_per_second:.0f} texts/s".format(**record))
            epoch_ends = state.step_in_epoch == trainer.steps_per_epoch
            if epoch_ends:
                state.epoch_losses.append(_mean_loss(state))
                state.epoch, state.step_in_epoch = state.epoch + 1, 0

            # ---- score and save
            every = trainer.score_every
            due = epoch_ends if every == "epoch" else every != "end" and state.step % int(every) == 0
            if due or is_last:
                score_and_save(trainer, last=is_last)

            # ---- stop
            if trainer.processes.any(stop_requested()) and not is_last:
                if not due:
                    _save(trainer, None)
                raise Interrupted(f"stopped after step {state.step}, which is saved")
        if state.scored_step != state.step:  # resumed with nothing left to train
            score_and_save(trainer, last=True)
    if has_no_patience(state, settings):
        log.info("no improvement in %d evaluations: stopped", state.num_without_improvement)
    if state.best_step is None:
        raise _no_best(trainer)
    if 2 * (settled := settled_epoch(state.epoch_losses)) <= (number := len(state.epoch_losses)):
        log.info("the loss has hardly changed since epoch %d of %d (trainer.max_epochs)", settled, number)
    return state


def _mean_loss(state: TrainerState) -> float:
    """Of the current epoch's steps, since the last evaluation if there was one."""
    return state.loss_sum / max(state.num_losses, 1)


def settled_epoch(losses: Sequence[float]) -> int:
    """The first epoch, from 1, after which the loss stays within 1 % of the first epoch's; 1 without any.

    >>> settled_epoch([2.0, 0.5, 0.01, 0.0, 0.01])
    3
    """
    moving = [n for n, loss in enumerate(losses, 1) if abs(loss - losses[-1]) > 0.01 * abs(losses[0])]
    return max(moving, default=0) + 1


def _remaining_steps(trainer: Trainer) -> Iterator[list[list[int]]]:
    """The remaining steps, from the training's state on (which the loop advances between them).

    Yields:
        The anchors of each micro-step, by number.
    """
    state, settings, total = trainer.state, trainer.settings, trainer.num_steps
    while state.step < total and not has_no_patience(state, settings):
        steps = trainer.objective.epoch_steps(state.epoch, settings.accumulation)
        state.plan = (state.epoch, plan_digest(steps))
        check_plan(trainer.objective, steps, trainer.processes.broadcast(partial(plan_digest, steps)))
        if state.step_in_epoch >= len(steps):  # impossible with the same data
            raise UserError(f"epoch {state.epoch + 1} has only {len(steps)} steps; start a new run")
        for step in steps[state.step_in_epoch : state.step_in_epoch + total - state.step]:
            if has_no_patience(state, settings):  # also in the middle of an epoch, as after resuming
                return
            yield step


# ------------------------------------------------------------------ memory, before the first step


def longest_batch(batches: Iterable[Batch]) -> Batch:
    """The batch with the most characters, each distinct text counted once."""
    return max(batches, key=lambda batch: sum(map(len, {request.text for request in batch.requests})))


def tries_longest_batch(trainer: Trainer) -> bool:
    """Whether to try the longest batch: not on a CPU, where the system kills the process without an error."""
    settings = trainer.settings
    on_cpu = trainer.encoder.device.type == "cpu"
    return not (on_cpu or settings.memory_check == "off" or settings.freeze_encoder)


def _try_longest_batch(trainer: Trainer) -> None:
    """Compute the gradients of the epoch's longest batch and discard them; this does not change the run.

    Meanwhile as much memory is taken as later steps need as well: for the optimizer's moments, and for the
    gradients of earlier micro-steps.

    Raises:
        RuntimeError: if memory does not suffice, unless `trainer.memory_check` only warns of it. With several
            processes in any case: the others would wait for this one.
    """
    settings, objective, device = trainer.settings, trainer.objective, trainer.encoder.device
    # One of two epochs may be of pairs, with another number of texts.
    epochs = trainer.state.epoch, trainer.state.epoch + 1
    steps = ((e, step) for e in epochs for step in objective.epoch_steps(e, settings.accumulation))
    micro_steps = [(e, anchors) for e, step in steps for anchors in step]
    drawn = micro_steps[:: -(-len(micro_steps) // _MAX_DRAWN)]
    batch = longest_batch(objective.batch(e, anchors) for e, anchors in drawn)
    log.info("trying the longest of the epoch's batches: %d texts", len({r.text for r in batch.requests}))
    trained = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # the untrained model was scored before
    trainer.encoder.train()
    objective.head.train()
    try:
        moments = [torch.empty_like(p) for p in 2 * trained] if trainer.state.step == 0 else []
        if settings.accumulation > 1:
            for p in trained:
                p.grad = torch.zeros_like(p)
        compute_gradients(trainer, batch)
        del moments
    except RuntimeError as error:
        if not is_out_of_memory(error) or settings.memory_check == "stop" or trainer.processes.count > 1:
            raise
        log.warning("the longest batch does not fit into memory: %s", first_line(error))
    else:
        if device.type == "cuda":
            most, all_ = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
            log.info("it fits: %.3g GB of this GPU's %.3g GB", most / 1e9, all_ / 1e9)
    finally:
        trainer.optimizer.zero_grad(set_to_none=True)


# ------------------------------------------------------------------ scoring and saving


def score_and_save(trainer: Trainer, *, last: bool) -> None:
    """Score the model in its present state, save it with its scores, and make it the best if it is.

    All processes score; the main one saves.

    Args:
        last: no step follows.

    Raises:
        UserError: if the monitored score is missing, or the checkpoint cannot be saved.
        Pruned: if `on_score` does.
    """
    state, settings = trainer.state, trainer.settings
    encoder, usages = trainer.encoder, trainer.usages
    with trainer.remedies.exported_weights():
        if usages and encoder.meanings is not None:  # the gate is for how the encoder embeds now
            with evaluation_mode(encoder):
                encoder.meanings = encoder.meanings.override(
                    gate=fit_gate(encoder, enough_usages(encoder, usages))
                )
        trainer.suite.keeps_embeddings = last  # it may be the best, which is scored once more
        scorecard = trainer.suite.run(encoder, only=trainer.scored)
    scores = scorecard.scores | scorecard.undefined
    is_best = update_best(state, scores, settings)
    trainer.undefined = scorecard.undefined
    score = monitored_scores(scores, settings)
    mean_loss = _mean_loss(state)
    state.loss_sum, state.num_losses = 0.0, 0
    state.scored_step = state.step
    _save(trainer, scorecard.scores, is_best=is_best)
    epoch = state.epoch + state.step_in_epoch / trainer.steps_per_epoch
    outcome = ("not finite" if score is None else f"{score:.4f}") + " (best so far)" * is_best
    message = "epoch %.4g, step %d: loss %.4f, %s %s; scored in %.1f s"
    log.info(message, epoch, state.step, mean_loss, monitor_name(settings), outcome, scorecard.seconds)
    if trainer.on_saved is not None and trainer.processes.is_main:
        trainer.on_saved(trainer.run.path / f"step_{state.step}")
    if trainer.on_score is not None and not last and not has_no_patience(state, settings):
        trainer.on_score(score)


def _num_bytes(trainer: Trainer) -> int:
    """Of the weights and the optimizer's state; a sharded tensor counts as a whole."""
    moments = (v for state in trainer.optimizer.state.values() for v in state.values())
    tensors = (*trainer.encoder.parameters(), *trainer.objective.head.parameters(), *moments)
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def _save(trainer: Trainer, scores: ScoreTable | None, *, is_best: bool = False) -> None:
    """Save a checkpoint, which is also a sentence-transformers model, so that it can be scored.

    Args:
        scores: None if the run was asked to stop between two evaluations.
    """
    run, state, modules = trainer.run, trainer.state, trainer.objective.head
    state.sums = trainer.sums()

    def write() -> None:
        if scores is not None:
            # Before the checkpoint: a run that is killed in between drops the line when it is resumed.
            run.log_metrics({"step": state.step, "epoch": state.epoch, "scores": scores})
        saved = new_checkpoint(run.path, state, scores, run.snapshot(), _num_bytes(trainer))
        with saved as folder, as_os_errors():
            trainer.remedies.save(folder)
            if objective_weights := modules.state_dict():
                save_file(objective_weights, folder / OBJECTIVE)
            for module in modules.modules():  # in a mixture, those of each part
                if isinstance(module, SavesFiles):
                    module.publish(folder)
            save_file(optimizer_tensors(trainer.optimizer), folder / OPTIMIZER)
        if is_best:
            write_best(run.path, run.path / f"step_{state.step}", trainer.card)
        if scores is not None:
            prune(run.path, trainer.settings.keep_checkpoints, state.best_step)

    with full_state(trainer.encoder, trainer.optimizer, is_main=trainer.processes.is_main):
        trainer.processes.broadcast(write)


# ------------------------------------------------------------------ the best checkpoint, and patience


def check_monitor(settings: TrainerSettings, not_scored: Mapping[str, str]) -> None:
    """Check, before training, that no monitored score belongs to a benchmark without data.

    Raises:
        UserError: with the reason why the benchmark is not scored.
    """
    for key in settings.monitor:
        if (reason := not_scored.get(key.partition("/")[0])) is not None:
            raise UserError(f"{key!r} picks the best checkpoint, but {reason}", option="trainer.monitor")


def monitor_name(settings: TrainerSettings) -> str:
    """The name of what :func:`monitored_scores` returns."""
    keys = settings.monitor
    return keys[0] if len(keys) == 1 else f"mean of {len(keys)} monitored scores"


def monitored_scores(scores: Mapping[str, float], settings: TrainerSettings) -> float | None:
    """The score that picks the best checkpoint: the mean over `trainer.monitor`.

    None if it is NaN or infinite, which is neither better nor worse than any score.

    Args:
        scores: of a checkpoint, including those that are not finite.

    Raises:
        UserError: if a score is missing (a slice without queries, for example).
    """
    for key in settings.monitor:
        if key not in scores:
            raise UserError(f"this data gives no score {key!r}; choose another key", option="trainer.monitor")
    score = sum(scores[key] for key in settings.monitor) / len(settings.monitor)
    return score if math.isfinite(score) else None


def update_best(state: TrainerState, scores: Mapping[str, float], settings: TrainerSettings) -> bool:
    """Whether these scores are the best so far; also counts evaluations without improvement, for patience.

    A monitored score that is not finite is never the best (not even the first one), nor an improvement.
    """
    score = monitored_scores(scores, settings)
    if score is None:
        state.num_without_improvement += 1
        return False
    if state.patience_score is None or score > state.patience_score + settings.min_delta:
        state.patience_score, state.num_without_improvement = score, 0
    else:
        state.num_without_improvement += 1
    if state.best_score is not None and score <= state.best_score:
        return False
    state.best_score, state.best_step = score, state.step
    return True


def has_no_patience(state: TrainerState, settings: TrainerSettings) -> bool:
    """Whether `patience` evaluations have passed without an improvement."""
    return settings.patience is not None and state.num_without_improvement >= settings.patience


def _no_best(trainer: Trainer) -> UserError:
    """The error for a run in which no checkpoint had a finite monitored score."""
    run, undefined = trainer.run.path, trainer.undefined
    lines = [
        f"  - {key} (benchmark {undefined.parts[key].benchmark}): {undefined[key]} at the last evaluation"
        for key in trainer.settings.monitor
        if key in undefined
    ]
    saved = ", ".join(path.name for path in checkpoints(run))
    return UserError(
        "no checkpoint could be chosen as the best: the monitored score was not finite at any evaluation\n"
        + "\n".join(lines)
        + f"\nThe checkpoints {saved} are complete. Fix the benchmark, then: {resume_command(run)}\n"
        "Or train again with another trainer.monitor="
    )
