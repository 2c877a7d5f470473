"""A launcher that runs a batch's jobs at once, in processes of their own, as Hydra's joblib launcher does.

`python -m tests.process_launcher <arguments>` is `python -m train <arguments>`, with this launcher in it. As
there, a job and its result are pickled, and its process knows nothing of the sweep's but what it is handed.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from tests import warm

_JOB = "job:"  # before the file of a job
NAME = "hydra_plugins.of_tests.ProcessLauncher"


class ProcessLauncher(Launcher):
    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        state = Singleton.get_state()
        jobs = [
            (initial_job_idx + n, list(overrides), self.context, self.config, self.task, state)
            for n, overrides in enumerate(job_overrides)
        ]
        with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("r+b") as nothing:
            programs = []
            for n, job in enumerate(jobs):
                (Path(folder) / f"{n}").write_bytes(cloudpickle.dumps(job))
                arguments = ["-m", "tests.process_launcher", _JOB, f"{folder}/{n}"]
                streams = (nothing, sys.stdout.buffer, sys.stderr.buffer)
                programs.append(warm.Program(arguments, cwd=warm.ROOT, env=os.environ, streams=streams))
            assert [program.wait(120) for program in programs] == [0] * len(jobs)
            return [pickle.loads((Path(folder) / f"{n}.done").read_bytes()) for n in range(len(jobs))]


def _job(
    number: int,
    overrides: list[str],
    context: HydraContext,
    config: DictConfig,
    task: TaskFunction,
    state: Any,
) -> JobReturn:
    setup_globals()
    Singleton.set_state(state)
    job_config = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job_config):
        job_config.hydra.job.id, job_config.hydra.job.num = f"job_{number}", number
    HydraConfig.instance().set_config(job_config)
    return run_job(
        hydra_context=context,
        config=job_config,
        task_function=task,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _run_job(path: Path) -> None:
    done = _job(*pickle.loads(path.read_bytes()))
    path.with_name(f"{path.name}.done").write_bytes(cloudpickle.dumps(done))


if __name__ == "__main__":
    from tests import process_launcher  # as jobs know it, not of `__main__`

    if sys.argv[1] == _JOB:
        process_launcher._run_job(Path(sys.argv[2]))
    else:
        Plugins.instance().class_name_to_class[NAME] = process_launcher.ProcessLauncher
        runpy.run_module("train", run_name="__main__", alter_sys=True)
