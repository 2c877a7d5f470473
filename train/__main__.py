"""`python -m train`: fine-tune a model. `python -m train --help` lists the options."""

from pathlib import Path
from typing import Any

from train.cli import experiment_name, launch, output_folder, overrides
from train.processes import rank_of_launch
from train.resume import saved_config
from train.settings import TrainSettings, check


def run(config: dict[str, Any]) -> float:
    """One run, from its configuration to the monitored score of its best checkpoint."""
    folder = output_folder()
    if config["resume"] is not None:
        folder = Path(config["resume"])
        config = saved_config(folder, config, experiment_name(), overrides())
    settings: TrainSettings = check(TrainSettings, config)
    from train.fine_tune import fine_tune  # heavy: after the configuration is known to be right

    best = fine_tune(settings, config, experiment_name(), folder)
    if rank_of_launch() == 0:
        print(folder)
    return best


def main() -> None:
    launch("config", run)


if __name__ == "__main__":
    main()
