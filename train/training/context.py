"""The parts that a training run uses from start to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator

from train.config import EvalSettings, TrainerSettings
from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.evaluation.suite import Suite
from train.objectives import Objective
from train.runs.folder import RunFolder
from train.training.regularization import Retention

OnScores = Callable[[dict[str, float]], None]  # may raise train.errors.Pruned
OnSaved = Callable[[Path], None]


@dataclass(frozen=True)
class TrainingContext:
    """The parts that a training run uses; its progress is in :class:`~train.training.setup.Training`.

    Attributes:
        retention: the encoder, with the remedies against forgetting.
        objective: data, batches and loss.
        suite: the benchmarks for checkpoints.
        accelerator: device, precision and gradient scaler.
        processes: all train; the main one writes.
        run: the folder for log and checkpoints.
        trainer: training options.
        evaluation: scoring options.
        benchmarks: of the suite, those that checkpoints are scored on; None = all.
        seed: of all random numbers.
        card: the model card of `best/`.
        usages: sentences that the gate of the meanings is fitted to, and whether they are idiomatic.
        on_saved: called in the main process with each checkpoint's folder, once it is scored and saved.
        on_scores: called with the scores of each evaluation except the last, once its checkpoint is saved.
    """

    retention: Retention
    objective: Objective
    suite: Suite
    accelerator: Accelerator
    processes: Processes
    run: RunFolder
    trainer: TrainerSettings
    evaluation: EvalSettings
    seed: int
    card: str
    benchmarks: list[str] | None = None
    usages: Sequence[tuple[str, bool]] = ()
    on_saved: OnSaved | None = None
    on_scores: OnScores | None = None

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained."""
        return self.retention.encoder
