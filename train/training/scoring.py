"""Evaluations in training: score the model, save it as a checkpoint, keep track of the best one."""

from __future__ import annotations

import logging
import time

from train.distributed.sharding import full_state
from train.training.checkpoint import prune, save_checkpoint, write_best
from train.training.context import TrainingContext
from train.training.early_stopping import monitor_name, monitored, out_of_patience, update_best
from train.training.setup import Training
from train.training.usage_gate import renew_gate

log = logging.getLogger(__name__)


class CheckpointScorer:
    """Scores and saves the model during training.

    All processes score; the main one saves.

    Attributes:
        num_texts: texts trained on since the last evaluation (or the start), for the log.
        undefined: scores of the last evaluation that were not finite, by key.
    """

    def __init__(self, context: TrainingContext, training: Training) -> None:
        self.num_texts = 0
        self.undefined: dict[str, float] = {}
        self._context = context
        self._training = training
        self._since = time.perf_counter()  # the last evaluation, or the start

    def score_and_save(self, *, last: bool) -> None:
        """Score the model as it stands, save it with its scores, and make it the best if it is.

        Args:
            last: no step follows.

        Raises:
            UserError: if the monitored score is missing, or the checkpoint cannot be saved.
            Pruned: if `on_scores` does.
        """
        context, state = self._context, self._training.state
        training_seconds = time.perf_counter() - self._since
        with context.retention.exported_weights():
            renew_gate(context.encoder, context.usages, context.processes)
            scorecard = context.suite.run(context.encoder, only=context.benchmarks)
        is_best = update_best(state, scorecard.scores | scorecard.undefined, context.trainer)
        self.undefined = scorecard.undefined
        monitored_score = monitored(scorecard.scores | scorecard.undefined, context.trainer)
        mean_loss = state.loss_sum / max(state.num_losses, 1)
        state.loss_sum, state.num_losses = 0.0, 0
        state.scored_step = state.step
        self._save(scorecard.scores, is_best=is_best)
        log.info(
            "epoch %.4g, step %d: loss %.4f, %s %s%s; %.0f texts/s, scored in %.1f s",
            state.epoch + state.step_in_epoch / self._training.length.steps_per_epoch,
            state.step,
            mean_loss,
            monitor_name(context.trainer),
            "not finite" if monitored_score is None else f"{monitored_score:.4f}",
            " (best)" if is_best else "",
            self.num_texts / training_seconds,
            scorecard.seconds,
        )
        if context.on_saved is not None and context.processes.is_main:
            context.on_saved(context.run.path / f"step_{state.step}")
        if context.on_scores is not None and not last and not out_of_patience(state, context.trainer):
            context.on_scores(scorecard.scores)
        self.num_texts, self._since = 0, time.perf_counter()

    def save_unscored(self) -> None:
        """Save a checkpoint without scores: the run was asked to stop between two evaluations."""
        self._save(None, is_best=False)

    def _save(self, scores: dict[str, float] | None, *, is_best: bool) -> None:
        context, training = self._context, self._training

        def save() -> None:
            run, state = context.run, training.state
            if scores is not None:
                # Before the checkpoint: a run that is killed in between drops the line when it is resumed.
                run.log_metrics({"step": state.step, "epoch": state.epoch, "scores": scores})
            saved = save_checkpoint(
                run.path,
                context.retention,
                context.objective.modules,
                training.optimizer,
                state,
                scores,
                record=run.snapshot(),
            )
            if is_best:
                write_best(run.path, saved, context.card)
            if scores is not None:
                prune(run.path, context.trainer.keep_checkpoints, state.best_step)

        with full_state(context.encoder, training.optimizer, is_main=context.processes.is_main):
            context.processes.from_main(save)
