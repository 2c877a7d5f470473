"""The state of this start of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from train.runs.folder import RunFolder


@dataclass
class Start:
    """The state of this start, also after Hydra has cleared its own.

    Attributes:
        config: the configuration, once it is composed.
        unexpected: an error of the task that the user cannot fix.
        made_folder: the folder in `run_dir=` did not exist before.
        run: the run folder.
    """

    config: DictConfig | None = None
    unexpected: BaseException | None = None
    made_folder: bool = False
    run: RunFolder | None = None


started = Start()


def remember(config: DictConfig) -> None:
    """Keep the configuration of the run that starts, in the process that runs it."""
    started.config = config
