"""What is known of this start of the program."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig

from train.runs.folder import RunFolder


@dataclass
class Start:
    """What is known of this start, also once Hydra has forgotten it.

    Attributes:
        config: the configuration, once it is composed.
        unexpected: an error of the task that is no user's slip.
        made_folder: `run_dir=` named a folder that was not there.
        run: the folder of the run.
    """

    config: DictConfig | None = None
    unexpected: Exception | None = None
    made_folder: bool = False
    run: RunFolder | None = None


started = Start()


def remember(config: DictConfig) -> None:
    """The configuration of the run that starts, in whatever process a launcher runs it."""
    started.config = config
