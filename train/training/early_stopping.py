"""Which checkpoint is the best, and when to stop waiting for a better one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from train.config import TrainerSettings
from train.errors import UserError
from train.runs.resume import checkpoints
from train.training.checkpoint import TrainerState


def monitor_name(trainer: TrainerSettings) -> str:
    """The name of what :func:`monitored` returns."""
    keys = trainer.monitor
    return keys[0] if len(keys) == 1 else f"mean of {len(keys)} monitored scores"


def check_monitor(trainer: TrainerSettings, not_scored: Mapping[str, str]) -> None:
    """Check, before training, that no monitored score belongs to a benchmark without data.

    Raises:
        UserError: with the reason why the benchmark is not scored.
    """
    for key in trainer.monitor:
        reason = not_scored.get(key.partition("/")[0])
        if reason is not None:
            raise UserError(f"trainer.monitor: {key!r} picks the best checkpoint, but {reason}")


def monitored(scores: Mapping[str, float], trainer: TrainerSettings) -> float | None:
    """The score that picks the best checkpoint: the mean over `trainer.monitor`.

    None if it is NaN or infinite, which is neither better nor worse than any score.

    Args:
        scores: of a checkpoint, including those that are not finite.

    Raises:
        UserError: if a score is missing (a slice without queries, for example).
    """
    for key in trainer.monitor:
        if key not in scores:
            raise UserError(f"trainer.monitor: this data gives no score {key!r}; choose another key")
    score = sum(scores[key] for key in trainer.monitor) / len(trainer.monitor)
    return score if math.isfinite(score) else None


def monitored_if_any(scores: Mapping[str, float], trainer: TrainerSettings) -> float | None:
    """The monitored score, or None if an untrained model does not have it (scores of experts)."""
    return monitored(scores, trainer) if all(key in scores for key in trainer.monitor) else None


def update_best(state: TrainerState, scores: Mapping[str, float], trainer: TrainerSettings) -> bool:
    """Whether these scores are the best so far; also counts evaluations without improvement, for patience.

    A monitored score that is not finite is never the best (not even the first one), nor an improvement.
    """
    score = monitored(scores, trainer)
    if score is None:
        state.num_without_improvement += 1
        return False
    if state.patience_score is None or score > state.patience_score + trainer.min_delta:
        state.patience_score, state.num_without_improvement = score, 0
    else:
        state.num_without_improvement += 1
    if state.best_score is not None and score <= state.best_score:
        return False
    state.best_score, state.best_step = score, state.step
    return True


def no_best(undefined: Mapping[str, float], trainer: TrainerSettings, run: Path) -> UserError:
    """The error for a run in which no checkpoint had a finite monitored score.

    Args:
        undefined: the scores that were not finite at the last evaluation.
        run: the run folder.
    """
    lines = [
        f"  - {key} (benchmark {key.partition('/')[0]}): {undefined[key]} at the last evaluation"
        for key in trainer.monitor
        if key in undefined
    ]
    saved = ", ".join(path.name for path in checkpoints(run))
    return UserError(
        "no checkpoint could be chosen as the best: the monitored score was not a finite number at any "
        "evaluation\n" + "\n".join(lines) + "\n"
        f"The checkpoints {saved} in {run} are complete. Either\n"
        f"  - fix the benchmark, then: python -m train resume={run}\n"
        f"  - or use one of them as it is: python -m train.evaluate model={run}/<checkpoint>\n"
        "  - or train again with another trainer.monitor="
    )


def out_of_patience(state: TrainerState, trainer: TrainerSettings) -> bool:
    """Whether `patience` evaluations have passed without an improvement."""
    return trainer.patience is not None and state.num_without_improvement >= trainer.patience
