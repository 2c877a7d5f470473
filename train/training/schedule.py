"""The number of steps of a run, and what depends on the step's number: learning rate and random numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from train.config import TrainerSettings


@dataclass(frozen=True)
class RunLength:
    """How many optimizer steps a run has: in all, in an epoch, and for the warm-up."""

    total: int
    steps_per_epoch: int
    warmup: int

    @classmethod
    def of(cls, trainer: TrainerSettings, *, steps_per_epoch: int) -> RunLength:
        """The length of a run whose epochs have this many steps."""
        total = steps_per_epoch * trainer.max_epochs
        total = min(total, trainer.max_steps) if trainer.max_steps else total
        return cls(total, steps_per_epoch, num_warmup_steps(trainer, total))


def num_warmup_steps(trainer: TrainerSettings, total: int) -> int:
    """`warmup_steps`, or else `warmup_ratio` of all steps, rounded."""
    if trainer.warmup_steps is not None:
        return trainer.warmup_steps
    return round(trainer.warmup_ratio * total)


def schedule(trainer: TrainerSettings, step: int, warmup: int, total: int) -> float:
    """Factor of the peak learning rate after `step` steps (with a warm-up, 0 at the first step)."""
    if step < warmup:
        return step / warmup
    if trainer.schedule == "constant":
        return 1.0
    done = (step - warmup) / max(total - warmup, 1)
    return 1.0 - done if trainer.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def seed_everything(*numbers: int) -> None:
    """Seed what is drawn next (dropout) with these numbers, whatever was drawn before."""
    number = int(np.random.SeedSequence(list(numbers)).generate_state(1)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # the same, without the traceback that torch keeps for each accelerator that may come
        torch.default_generator.manual_seed(number)
