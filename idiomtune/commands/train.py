"""`idiomtune train`: fine-tune a model. `idiomtune train --help` lists the options."""

import math
import sys
from typing import Any

from idiomtune.config import TrainSettings
from idiomtune.io.files import printable
from idiomtune.io.processes import rank_of_launch
from idiomtune.programs.folders import experiment_name, overrides, record_start, run_folder
from idiomtune.programs.launch import launch, ready
from idiomtune.training.resume import saved_config
from idiomtune.training.run_folder import is_unfinished
from idiomtune.training.sweeper import score_reporter


def run(config: dict[str, Any]) -> float:
    """One run, from its configuration to the monitored score of its best checkpoint.

    A job of a sweep that an earlier start finished is skipped: its score is then NaN.
    """
    given = config["resume"]
    folder = run_folder(config)
    if given is None and config["resume"] is not None and not is_unfinished(folder.path):
        print(f"{folder.path}: this job is finished, and is skipped", file=sys.stderr)
        return math.nan
    if config["resume"] is not None:
        # A job of a sweep was started with the same overrides.
        config = saved_config(
            folder.path, config, experiment_name(), overrides() if given is not None else []
        )
    settings = ready(TrainSettings, config)
    from idiomtune.programs.fine_tune import fine_tune

    best = fine_tune(
        settings, config, experiment_name(), folder, record_start=record_start, on_score=score_reporter()
    )
    if rank_of_launch() == 0:
        print(printable(str(folder.path)))
    return best


def main() -> None:
    launch("config", run)


if __name__ == "__main__":
    main()
