"""Evaluations in training: score the model, save it as a checkpoint, keep track of the best one."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from train.distributed.processes import Processes
from train.distributed.sharding import full_state
from train.encoder.encoder import Encoder
from train.encoder.parallel import embed_all
from train.encoder.usage_gate import fit_usage_gate
from train.requests import Request
from train.training.checkpoint import prune, save_checkpoint, write_best
from train.training.early_stopping import monitor_name, monitored, out_of_patience, update_best
from train.training.setup import Training

log = logging.getLogger(__name__)


def score_and_save(training: Training, *, last: bool) -> None:
    """Score the model in its present state, save it with its scores, and make it the best if it is.

    All processes score; the main one saves.

    Args:
        last: no step follows.

    Raises:
        UserError: if the monitored score is missing, or the checkpoint cannot be saved.
        Pruned: if `on_scores` does.
    """
    state, trainer = training.state, training.trainer
    training_seconds = time.perf_counter() - training.since
    with training.retention.exported_weights():
        _renew_gate(training.encoder, training.usages, training.processes)
        scorecard = training.suite.run(training.encoder, only=training.settings.checkpoint_benchmarks)
    scores = scorecard.scores | scorecard.undefined
    is_best = update_best(state, scores, trainer)
    training.undefined = scorecard.undefined
    score = monitored(scores, trainer)
    mean_loss = state.loss_sum / max(state.num_losses, 1)
    state.loss_sum, state.num_losses = 0.0, 0
    state.scored_step = state.step
    save(training, scorecard.scores, is_best=is_best)
    log.info(
        "epoch %.4g, step %d: loss %.4f, %s %s%s; %.0f texts/s, scored in %.1f s",
        state.epoch + state.step_in_epoch / training.length.steps_per_epoch,
        state.step,
        mean_loss,
        monitor_name(trainer),
        "not finite" if score is None else f"{score:.4f}",
        " (best)" if is_best else "",
        training.num_texts / training_seconds,
        scorecard.seconds,
    )
    if training.on_saved is not None and training.processes.is_main:
        training.on_saved(training.run.path / f"step_{state.step}")
    if training.on_scores is not None and not last and not out_of_patience(state, trainer):
        training.on_scores(scorecard.scores)
    training.num_texts, training.since = 0, time.perf_counter()


def save(training: Training, scores: dict[str, float] | None, *, is_best: bool = False) -> None:
    """Save a checkpoint.

    Args:
        scores: None if the run was asked to stop between two evaluations.
    """
    run, state = training.run, training.state

    def write() -> None:
        if scores is not None:
            # Before the checkpoint: a run that is killed in between drops the line when it is resumed.
            run.log_metrics({"step": state.step, "epoch": state.epoch, "scores": scores})
        saved = save_checkpoint(
            run.path,
            training.retention,
            training.objective.modules,
            training.optimizer,
            state,
            scores,
            run.snapshot(),
        )
        if is_best:
            write_best(run.path, saved, training.card)
        if scores is not None:
            prune(run.path, training.trainer.keep_checkpoints, state.best_step)

    with full_state(training.encoder, training.optimizer, is_main=training.processes.is_main):
        training.processes.from_main(write)


def _renew_gate(encoder: Encoder, usages: Sequence[tuple[str, bool]], processes: Processes) -> None:
    """Fit the gate of the meanings to the training sentences, as the encoder embeds them now.

    Args:
        encoder: with meanings; its train/eval mode is restored.
        usages: sentences, and whether they use their expression idiomatically; without any nothing changes.
        processes: all of them fit it; each embeds a part of the sentences.
    """
    if not usages or encoder.meanings is None:
        return
    was_training = encoder.training
    encoder.eval()
    try:
        requests = [Request(text, with_meanings=False) for text, _ in usages]
        embeddings = embed_all(encoder, requests, processes)
    finally:
        encoder.train(was_training)
    gate = fit_usage_gate(embeddings, [is_idiomatic for _, is_idiomatic in usages])
    encoder.meanings = encoder.meanings.override(gate=gate)
