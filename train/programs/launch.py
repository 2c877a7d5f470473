"""From the command line to a checked configuration, and from an error to a message and an exit status.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import train
from train.config.compose import (
    CONF,
    chosen_by_default,
    config_names,
    explained,
    help_text,
    plain,
    register_resolvers,
)
from train.config.validation import refuse_values
from train.errors import UserError
from train.io.processes import has_peers, is_lost_peer, rank_of_launch
from train.programs.arguments import (
    follower_arguments,
    named_grid,
    quoted,
    rewrite_arguments,
)
from train.programs.ending import TRACEBACKS, print_error, remember, report_error, started
from train.programs.folders import new_sweep_folder, remove_unused_folder, run_folder_path
from train.training.sweeper import register


def launch(config_name: str, task: Callable[[dict[str, Any]], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line's overrides and run `task` on it.

    The task gets plain, resolved containers. A :class:`UserError` or an error of Hydra's becomes a message
    and exit status 2, an interrupt status 130, any other error a short message, a traceback in a file, and
    status 1. In a sweep a failed job is reported and the next one starts; the sweep's status is that of the
    first failure. With several processes only the main one has the run folder and prints; a sweep then ends
    with the first failure, which may concern one process only. `python -m train` alone shows its help.
    """
    if "--version" in sys.argv[1:]:  # Hydra would print its own
        print(f"idiomtune {train.__version__}")
        return
    if config_name == "config" and not sys.argv[1:]:
        sys.argv.append("--help")  # rather than a run of hours that nobody described
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(help_text(config_name))
        return
    wants_traceback = os.environ.get(TRACEBACKS) == "1"
    os.environ[TRACEBACKS] = "1"  # makes Hydra raise errors instead of printing a traceback
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line
    _register()
    grid: Path | None = None
    failures: list[UserError] = []  # of a run that is no job of a sweep: Hydra would add to the message

    def run(config: DictConfig) -> Any:
        _register()  # again, if a launcher runs the job in another process
        remember(config)  # a function, since a launcher may have sent a copy of `started`
        is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            return task(_plain(config))
        except (Exception, SystemExit) as error:  # a user's module may exit, with status 0
            remove_unused_folder()
            if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
                started.unexpected = error
            if is_sweep and has_peers() and not wants_traceback:
                report_error(_in_our_words(error))
            if not isinstance(error, UserError):
                raise
            if is_sweep:
                print_error(f"error: job {HydraConfig.get().job.num}: {error}")
                raise
            failures.append(error)
            return None

    try:
        sys.argv[1:] = rewrite_arguments(
            sys.argv[1:], config_names("model"), config_name, chosen_by_default(config_name, "benchmark")
        )
        if rank_of_launch():
            sys.argv[1:] += follower_arguments()
        elif config_name == "config" and (name := named_grid(sys.argv[1:])) is not None:
            grid = Path(name) if name else new_sweep_folder(sys.argv[1:])
            if not name:
                sys.argv.append(f"hydra.sweep.dir={quoted(str(grid))}")
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
        finally:
            if grid is not None and grid.is_dir():
                _show_sweep(grid)
        for failure in failures:
            raise failure
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        is_hydras_end = isinstance(error, SystemExit) and error is not started.unexpected
        if is_hydras_end or (wants_traceback and isinstance(error, Exception)):
            raise
        sys.exit(report_error(_in_our_words(error)))


def _show_sweep(folder: Path) -> None:
    """The table of a grid's jobs, also if some have failed; a search shows its own."""
    from train.reports.screens import show_finished_sweep

    try:
        show_finished_sweep(folder)
    except Exception as error:  # it must not hide how the jobs ended
        print_error(f"the table of {folder} could not be shown: {type(error).__name__}: {error}")


def _plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain, resolved containers, without secrets.

    Raises:
        UserError: if there are any, also in Hydra's own options.
    """
    resolved = plain(config, throw_on_missing=True)
    refuse_values(resolved)
    refuse_values({"hydra": OmegaConf.to_container(HydraConfig.instance().cfg.hydra)})  # type: ignore[union-attr]
    return resolved


def _register() -> None:
    register_resolvers()
    OmegaConf.register_new_resolver("run_folder", run_folder_path, use_cache=False, replace=True)
    register()


def _in_our_words(error: BaseException) -> BaseException:
    """An error of Hydra's, or of a lost process, as a :class:`UserError`; any other unchanged."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return UserError(explained(error))
    if not isinstance(error, Exception) or isinstance(error, UserError):
        return error
    if has_peers() and is_lost_peer(error):
        return UserError("another process of this launch ended; see its message")
    if error is not started.unexpected:  # raised by Hydra
        if isinstance(error, OSError) and error.filename is not None:
            return UserError(f"the folder of the run cannot be written: {error}")
        if started.config is None:  # a mistake that Hydra does not expect, such as `=3`
            return UserError(f"the command line could not be understood ({' '.join(sys.argv[1:])}): {error}")
    return error


def experiment_name() -> str:
    """The `+experiment=` of the current run, or `default`."""
    return str(HydraConfig.get().runtime.choices.get("experiment", "default"))


def overrides() -> list[str]:
    """The command line's overrides of the current run."""
    return list(HydraConfig.get().overrides.task)
