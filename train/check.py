"""`python -m train.check`: check a configuration and its data; the same options as for training."""

import sys
from typing import Any

from train.config import TrainSettings
from train.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Check what `python -m train` would train on and score."""
    settings: TrainSettings = ready(TrainSettings, config)
    from train.programs.prepare import check_data

    check_data(settings)


def main() -> None:
    # With ++ no folder is made.
    given = [f"++{argument}" if argument.startswith("run_dir=") else argument for argument in sys.argv[1:]]
    if not any(argument.startswith("resume=") for argument in given):
        # Leaves no folder behind. Next to another option: the parser takes none after a flag such as --cfg.
        options = [i for i, argument in enumerate(given) if "=" in argument and not argument.startswith("-")]
        given.insert(options[-1] + 1 if options else len(given), "hydra.run.dir=.")
    sys.argv[1:] = given
    launch("config", run)


if __name__ == "__main__":
    main()
