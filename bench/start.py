"""The wait before the first step: `python -m train --help`, and a run on the sample up to its first step.

As a module, `python -m bench.start <override …>`, it runs `python -m train` until the first step ends.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from bench.workload import ROOT, Workload

IMPORTS = "imports"
HELP = "train --help"
FIRST_STEP = "to the first step on the sample"
_STEP = ["+experiment=idiolink_ft", "data=sample", "device=cpu"]


def processor_times(workload: Workload) -> dict[str, float]:
    """Processor seconds of each command; `imports` are those of the libraries alone, to compare with.

    The cache is empty, so that no run before makes the wait shorter.
    """
    model = [] if workload.model is None else ["model=pretrained", f"model.path='{workload.model}'"]
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: _seconds(arguments, {"IDIOM_CACHE": f"{folder}/cache"})
            for name, arguments in (
                (IMPORTS, ["-c", "import torch, sentence_transformers"]),
                (HELP, ["-m", "train", "--help"]),
                (FIRST_STEP, ["-m", "bench.start", *_STEP, *model, f"run_dir='{folder}/run'"]),
            )
        }


def _seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Of a Python process, with its children."""
    before = _of_children()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return _of_children() - before


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Train until the first step is logged."""
    from idiomtune.programs.run import main as program
    from idiomtune.training.run_folder import RunFolder

    def ended(_: RunFolder, record: dict[str, Any]) -> None:
        if "loss" in record:
            os._exit(0)

    with patch.object(RunFolder, "log_metrics", ended):
        program("train", sys.argv[1:])
    sys.exit("the run ended without a step")


if __name__ == "__main__":
    main()
