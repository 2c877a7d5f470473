"""What a training works with from its start to its end."""

from __future__ import annotations

from collections.abc import Callable
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
    """What a training works with; where it stands is in :class:`~train.training.setup.Training`.

    Attributes:
        retention: the encoder, and what keeps it near the model that it was.
        objective: what is learned.
        suite: what checkpoints are scored on.
        accelerator: device, precision and gradient scaler.
        processes: all of them train; the main one writes.
        run: the folder that gets the log and the checkpoints.
        trainer: options of the training.
        evaluation: options of scoring.
        seed: of everything that is drawn.
        card: the model card of `best/`.
        on_saved: called in the main process with each checkpoint's folder, once it is scored and saved.
        on_scores: gets the scores of each evaluation but the last, once its checkpoint is saved.
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
    on_saved: OnSaved | None = None
    on_scores: OnScores | None = None

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained."""
        return self.retention.encoder
