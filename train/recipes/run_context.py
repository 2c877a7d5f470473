"""What all parts of a run share."""

from __future__ import annotations

from dataclasses import dataclass

from accelerate import Accelerator

from train.config import TrainSettings
from train.distributed.device import Placement
from train.distributed.processes import Processes
from train.runs.folder import RunFolder


@dataclass(frozen=True)
class RunContext:
    """What all parts of a run share.

    Attributes:
        settings: the checked configuration.
        run: its folder, claimed and with a record.
        placement: device and precision.
        accelerator: the same, for training.
        processes: of the launch.
    """

    settings: TrainSettings
    run: RunFolder
    placement: Placement
    accelerator: Accelerator
    processes: Processes
