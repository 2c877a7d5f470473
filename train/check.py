"""`python -m train.check`: check a configuration and its data; the same options as for training."""

from typing import Any

from train.cli.folders import remove_unused_folder
from train.cli.launch import launch
from train.config import TrainSettings, check


def run(config: dict[str, Any]) -> None:
    """Check what `python -m train` would train on and score."""
    settings: TrainSettings = check(TrainSettings, config)
    remove_unused_folder()
    from train.recipes.check import check_data  # heavy: after the configuration is checked

    check_data(settings)


def main() -> None:
    launch("config", run)


if __name__ == "__main__":
    main()
