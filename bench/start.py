"""The wait before the first step: `python -m train --help`, and a run on the sample up to its first step.

As a module, `python -m bench.start <override …>`, it runs `python -m train` until the first step ends.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from bench.measure import ROOT
from bench.workload import Workload

_STEP = ["+experiment=idiolink_ft", "data=sample", "device=cpu"]


def start_ratios(workload: Workload, rounds: int) -> dict[str, list[float]]:
    """Processor time of importing the libraries over that of each command.

    The cache is empty, so that no run before makes the wait shorter.
    """
    model = [] if workload.model is None else ["model=pretrained", f"model.path='{workload.model}'"]
    ratios: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            imports = processor_seconds(["-c", "import torch, sentence_transformers"], folder)
            first = ["-m", "bench.start", *_STEP, *model, f"run_dir='{folder}/run'"]
            kinds = {"train --help": ["-m", "train", "--help"], "to the first step on the sample": first}
            for name, arguments in kinds.items():
                values = ratios.setdefault(f"{name}, against importing the libraries", [])
                values.append(imports / processor_seconds(arguments, folder))
    return ratios


def processor_seconds(arguments: Sequence[str], folder: str) -> float:
    """Of a Python process, with its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "IDIOM_CACHE": f"{folder}/cache"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Train until the first step is logged."""
    from idiomtune.cli import main as program
    from idiomtune.training.run_folder import RunFolder

    def ended(_: RunFolder, record: dict[str, Any]) -> None:
        if "loss" in record:
            os._exit(0)

    with patch.object(RunFolder, "log_metrics", ended):
        program(["train", *sys.argv[1:]])
    sys.exit("the run ended without a step")


if __name__ == "__main__":
    main()
