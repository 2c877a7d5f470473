"""From the command line to a checked configuration, and from an error to a message and an exit status.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import train
from train.cli.arguments import (
    follower_arguments,
    is_unnamed_sweep,
    quoted,
    rewrite_arguments,
    sweep_folder,
)
from train.cli.folders import new_sweep_folder, remove_unused_folder, run_folder_path
from train.cli.start import remember, started
from train.config.compose import (
    CONF,
    chosen_by_default,
    config_names,
    explained,
    help_text,
    plain,
    register_resolvers,
)
from train.config.credentials import refuse_values
from train.distributed.processes import has_peers, is_lost_peer, rank_of_launch
from train.errors import UserError
from train.io.files import write_text
from train.io.text import printable
from train.sweeps.sweeper import register

_AFTER_THE_FIRST = 5  # seconds that a process waits, so that an error common to all is printed once
_INTERRUPTED = 130  # exit status, as of a shell command that Ctrl-C ended
_TRACEBACKS = "HYDRA_FULL_ERROR"


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
    wants_traceback = os.environ.get(_TRACEBACKS) == "1"
    os.environ[_TRACEBACKS] = "1"  # makes Hydra raise errors instead of printing a traceback
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line
    _register()
    failures: list[UserError] = []  # of a run that is no job of a sweep: Hydra would add to the message

    def run(config: DictConfig) -> Any:
        _register()  # again, if a launcher runs the job in another process
        remember(config)  # a function, since a launcher may have sent a copy of `started`
        is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            return task(_plain(config))
        except Exception as error:
            remove_unused_folder()
            if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
                started.unexpected = error
            if is_sweep and has_peers() and not wants_traceback:
                _end(error)
            if not isinstance(error, UserError):
                raise
            if is_sweep:
                _print(f"error: job {HydraConfig.get().job.num}: {error}")
                raise
            failures.append(error)
            return None

    try:
        sys.argv[1:] = rewrite_arguments(
            sys.argv[1:], config_names("model"), config_name, chosen_by_default(config_name, "benchmark")
        )
        if rank_of_launch():
            sys.argv[1:] += follower_arguments()
        elif config_name == "config" and is_unnamed_sweep(sys.argv[1:]):
            folder = new_sweep_folder(sys.argv[1:])
            sys.argv.append(f"hydra.sweep.dir={quoted(str(folder))}")
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
        finally:
            if config_name == "config" and not rank_of_launch():
                _show_sweep(sys.argv[1:])
        for failure in failures:
            raise failure
    except KeyboardInterrupt as error:
        _exit(f"interrupted: {error}" if str(error) else "interrupted", _INTERRUPTED)
    except Exception as error:
        if wants_traceback:
            raise
        _end(error)


def _show_sweep(arguments: Sequence[str]) -> None:
    """The table of a plain sweep's jobs, also where some have failed; a search shows its own."""
    folder = sweep_folder(arguments)
    if folder is not None and folder.is_dir():
        from train.reports.sweep_screen import show_finished_sweep

        try:
            show_finished_sweep(folder)
        except Exception as error:  # it must not hide how the jobs ended
            _print(f"the table of {folder} could not be shown: {type(error).__name__}: {error}")


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


def _end(error: Exception) -> NoReturn:
    """Report an error, and exit."""
    if isinstance(error, UserError):
        _exit(str(error), 2)
    if isinstance(error, HydraException | OmegaConfBaseException):
        _exit(explained(error), 2)
    if has_peers() and is_lost_peer(error):
        _exit("another process of this launch ended; see its message", 2)
    if error is not started.unexpected:  # raised by Hydra
        if isinstance(error, OSError) and error.filename is not None:
            _exit(f"the folder of the run cannot be written: {error}", 2)
        if started.config is None:  # a mistake that Hydra does not expect, such as `=3`
            _exit(f"the command line could not be understood ({' '.join(sys.argv[1:])}): {error}", 2)
    _exit(_unexpected(error), 1)


def experiment_name() -> str:
    """The `+experiment=` of the current run, or `default`."""
    return str(HydraConfig.get().runtime.choices.get("experiment", "default"))


def overrides() -> list[str]:
    """The command line's overrides of the current run."""
    return list(HydraConfig.get().overrides.task)


def search() -> tuple[dict[str, Any], Path] | None:
    """Options and folder of the search that the current run is a trial of; None outside a search."""
    hydra_config = HydraConfig.get()
    if hydra_config.sweeper.get("trial") is None:
        return None
    options = OmegaConf.to_container(hydra_config.sweeper, resolve=True)
    assert isinstance(options, dict)
    return {str(key): value for key, value in options.items()}, Path(str(hydra_config.sweep.dir))


def _unexpected(error: Exception) -> str:
    """The message for an unexpected error, with the file of its traceback."""
    import traceback

    text = "".join(traceback.format_exception(error))
    return f"unexpected {type(error).__name__}: {error}\nThe traceback is in {_keep(text)}"


def _keep(text: str) -> Path:
    """Write to the run's folder if there is one, else to a temporary file."""
    try:
        if started.run is not None and (started.run.path / "run.json").is_file():
            path = started.run.path / "error.log"
            write_text(path, text)
            return path
    except OSError:
        pass
    descriptor, name = tempfile.mkstemp(prefix="idiomtune-error-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


def _exit(message: str, status: int) -> NoReturn:
    who = ""
    if has_peers():
        if rank_of_launch() and status == _INTERRUPTED:  # the main process reports it, and still has to save
            time.sleep(_AFTER_THE_FIRST)
            os._exit(status)
        who = f"process {rank_of_launch()}: "
        if "another process" in message or rank_of_launch():
            time.sleep(_AFTER_THE_FIRST)  # the launcher ends the others once one has ended
    label = "" if status == _INTERRUPTED else "error: "
    _print(f"{label}{who}{message}")
    if has_peers():
        os._exit(status)  # the others may be waiting for this process
    sys.exit(status)


def _print(message: str) -> None:
    print(printable(message), file=sys.stderr, flush=True)
