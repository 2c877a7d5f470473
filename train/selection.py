"""Which checkpoint is best, and when to give up waiting for a better one."""

from __future__ import annotations

from collections.abc import Mapping

from train.checkpoint import TrainerState
from train.errors import UserError
from train.settings import TrainerSettings


def monitor_name(trainer: TrainerSettings) -> str:
    """What :func:`monitored` gives, in words."""
    keys = trainer.monitor
    return keys[0] if len(keys) == 1 else f"mean of {len(keys)} monitored scores"


def check_monitor(trainer: TrainerSettings, not_scored: Mapping[str, str]) -> None:
    """Before anything is trained: no monitored score is of a benchmark without data.

    Raises:
        UserError: with the reason why it is not scored.
    """
    for key in trainer.monitor:
        reason = not_scored.get(key.partition("/")[0])
        if reason is not None:
            raise UserError(f"trainer.monitor: {key!r} picks the best checkpoint, but {reason}")


def monitored(scores: dict[str, float], trainer: TrainerSettings) -> float:
    """The score that picks the best checkpoint: the mean over `trainer.monitor`.

    Raises:
        UserError: if a score is not there (a slice without queries, say).
    """
    for key in trainer.monitor:
        if key not in scores:
            raise UserError(f"trainer.monitor: this data gives no score {key!r}; choose another key")
    return sum(scores[key] for key in trainer.monitor) / len(trainer.monitor)


def monitored_if_any(scores: dict[str, float], trainer: TrainerSettings) -> float | None:
    """The monitored score, or None where an untrained model has none: that of experts, say."""
    return monitored(scores, trainer) if all(key in scores for key in trainer.monitor) else None


def update_best(state: TrainerState, scores: dict[str, float], trainer: TrainerSettings) -> bool:
    """Whether this is the best checkpoint so far; keeps the count for patience."""
    score = monitored(scores, trainer)
    if state.patience_score is None or score > state.patience_score + trainer.min_delta:
        state.patience_score, state.num_without_improvement = score, 0
    else:
        state.num_without_improvement += 1
    if state.best_score is not None and score <= state.best_score:
        return False
    state.best_score, state.best_step = score, state.step
    return True


def out_of_patience(state: TrainerState, trainer: TrainerSettings) -> bool:
    """Whether `patience` evaluations have passed without an improvement."""
    return trainer.patience is not None and state.num_without_improvement >= trainer.patience
