"""Starting a run's record, or continuing that of a resumed run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from train.config import TrainerSettings, TrainSettings
from train.distributed.device import Placement
from train.errors import UserError
from train.runs.folder import RunFolder
from train.runs.resume import checkpoints, read_run, saved_record
from train.training.checkpoint import TrainerState, drop_after, latest_checkpoint, read_state, recover, verify

log = logging.getLogger(__name__)


def start_or_resume(
    settings: TrainSettings, config: dict[str, Any], experiment: str, run: RunFolder, placement: Placement
) -> Path | None:
    """Open a new run's record, or continue that of the run in the folder.

    Returns:
        The checkpoint to resume from, if there is one.

    Raises:
        UserError: if the best model so far is lost, or the run is already longer than requested.
    """
    if experiment == "default" and settings.resume is None:
        log.info("no +experiment= given: training with the defaults of conf/config.yaml")
    config = config | {"resume": None}
    facts = {"device": placement.device, "precision": placement.precision, "reason": placement.reason}
    if settings.resume is None:
        run.start(config, experiment=experiment, seed=settings.seed, **facts)
        return None
    checkpoint = _checkpoint_to_resume(run.path)
    if checkpoint is None:
        log.warning("no checkpoint to resume from: starting again from step 0")
        experiment = read_run(run.path)["experiment"]
        run.start(config, experiment=experiment, seed=settings.seed, **facts)
        return None
    saved, state = saved_record(run.path, checkpoint), read_state(checkpoint)
    _check_length(settings.trainer, state)
    _warn_of_new_length(saved["config"]["trainer"], settings.trainer, state)
    run.resume(config, state.step, saved, **facts)
    log.info("resuming from %s", checkpoint)
    return checkpoint


def _checkpoint_to_resume(run: Path) -> Path | None:
    """The newest usable checkpoint; later ones are removed."""
    recover(run)
    checkpoint = latest_checkpoint(run)
    if checkpoint is None and any(verify(path) is None for path in checkpoints(run)):
        raise UserError(
            f"the run in {run} has complete checkpoints, but the best model so far is damaged both in its "
            "step_* folder and in best/: a resumed run would report a worse one as the best.\n"
            "  - evaluate a complete checkpoint: python -m train.evaluate model=<its folder>\n"
            f"  - train this run again from its start: remove {run}/step_*, then resume"
        )
    drop_after(run, read_state(checkpoint).step if checkpoint else 0)
    return checkpoint


def _check_length(trainer: TrainerSettings, state: TrainerState) -> None:
    """A run cannot be shortened below its present length: its record would not match its training."""
    epochs = state.epoch + (state.step_in_epoch > 0)
    if epochs > trainer.max_epochs or (trainer.max_steps is not None and state.step > trainer.max_steps):
        raise UserError(
            f"the run already has {state.step} steps in {epochs} epochs, more than "
            f"trainer.max_epochs={trainer.max_epochs} trainer.max_steps={trainer.max_steps}: leave these out "
            "to keep the run's length, or raise them"
        )


def _warn_of_new_length(before: dict[str, Any], trainer: TrainerSettings, state: TrainerState) -> None:
    """Warn if the run's length has changed, on which the learning rate of each step depends."""
    names = ("max_epochs", "max_steps")
    changed = [n for n in names if before.get(n) != getattr(trainer, n)]
    if changed and trainer.schedule != "constant":
        log.warning(
            "%s: from step %d on the learning rate follows the %s schedule for the new length, and before "
            "that the one for the old length: a run with the new length from its start ends differently",
            ", ".join(f"trainer.{n} was {before.get(n)}, is {getattr(trainer, n)}" for n in changed),
            state.step,
            trainer.schedule,
        )
