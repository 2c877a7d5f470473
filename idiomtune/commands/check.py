"""`idiomtune check`: check a configuration and its data; the same options as for training."""

from typing import Any

from idiomtune.config import TrainSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Check what `idiomtune train` would train on and score."""
    settings = ready(TrainSettings, config)
    from idiomtune.programs.prepare import check_data

    check_data(settings)


if __name__ == "__main__":
    launch("config", run)
