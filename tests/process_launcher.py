"""A launcher that runs a batch's jobs at once, in processes of their own, as Hydra's joblib launcher does.

`python -m tests.process_launcher <arguments>` is `python -m train <arguments>`, with this launcher in it.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]
from omegaconf import DictConfig, open_dict

NAME = "hydra_plugins.of_tests.ProcessLauncher"


class ProcessLauncher(Launcher):
    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        workers = get_reusable_executor(max_workers=len(job_overrides))
        state = Singleton.get_state()
        jobs = [
            workers.submit(
                _job, initial_job_idx + n, list(overrides), self.context, self.config, self.task, state
            )
            for n, overrides in enumerate(job_overrides)
        ]
        return [job.result() for job in jobs]


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


if __name__ == "__main__":
    from tests.process_launcher import ProcessLauncher as OfTests  # as workers know it, not of `__main__`

    Plugins.instance().class_name_to_class[NAME] = OfTests
    runpy.run_module("train", run_name="__main__", alter_sys=True)
