"""`idiomtune check`: check a configuration and its data; the same options as for training."""

import sys
from collections.abc import Sequence
from typing import Any

from idiomtune.config import TrainSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Check what `idiomtune train` would train on and score."""
    settings = ready(TrainSettings, config)
    from idiomtune.programs.prepare import check_data

    check_data(settings)


def without_folder(arguments: Sequence[str]) -> list[str]:
    """The command line, so that Hydra makes no folder for a run."""
    # With ++ it makes none.
    given = [f"++{argument}" if argument.startswith("run_dir=") else argument for argument in arguments]
    if not any(argument.startswith("resume=") for argument in given):
        # Leaves no folder behind. Next to another option: the parser takes none after a flag such as --cfg.
        options = [i for i, argument in enumerate(given) if "=" in argument and not argument.startswith("-")]
        given.insert(options[-1] + 1 if options else len(given), "hydra.run.dir=.")
    return given


def main() -> None:
    sys.argv[1:] = without_folder(sys.argv[1:])
    launch("config", run)


if __name__ == "__main__":
    main()
