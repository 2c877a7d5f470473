"""A program by name, from the command line or from Python: from words and values to its result.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from idiomtune.config import EvaluateSettings, LearnSettings, PushSettings, TrainSettings, check
from idiomtune.config.command_line import grid_by_name, rewrite_arguments, split_choices
from idiomtune.config.compose import (
    given_options,
    help_text,
    hydra_message,
    plain_values,
    quote_value,
    register_resolvers,
    to_dict,
    with_values,
)
from idiomtune.config.settings import GlossarySettings
from idiomtune.config.validation import Settings
from idiomtune.declarations.models import CONF
from idiomtune.declarations.options import Section
from idiomtune.errors import UserError
from idiomtune.io.files import printable
from idiomtune.io.processes import has_peers, is_lost_peer, rank_of_launch
from idiomtune.io.records import refuse_recorded_code
from idiomtune.io.secrets import hide_secrets, refuse_values
from idiomtune.io.terminal import log_to_stderr
from idiomtune.programs.call import call_of, new_sweep_folder, remove_unused_folder
from idiomtune.programs.failures import TRACEBACKS, RunState, current_run, print_error, report_error
from idiomtune.training.resume import find_run
from idiomtune.training.sweeper import register
from idiomtune.version import __version__

_CODE = "model.trust_remote_code"


@dataclass(frozen=True)
class Program:
    """A program whose options are in `conf/`; it is the function of its name in the module of its name.

    Attributes:
        config: the file, and what its help is called.
        settings: its options, checked.
        has_torch: whether it needs torch, which takes seconds.
    """

    config: str
    settings: type[Section]
    has_torch: bool = True


PROGRAMS = {
    "train": Program("config", TrainSettings),
    "check": Program("config", TrainSettings),
    "evaluate": Program("evaluate", EvaluateSettings),
    "learn": Program("learn", LearnSettings),
    "glossary": Program("glossary", GlossarySettings, has_torch=False),
    "push": Program("push", PushSettings, has_torch=False),
}


def run_program(name: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Any:
    """A program from Python: errors are raised, and no state of Hydra's or of this start is left.

    Args:
        words: options as on the command line, of one run.
        values: the same as nested values, which come after them.

    Returns:
        What the program returns.

    Raises:
        UserError: for everything that the user can fix.
    """
    chosen, others = split_choices(values or {})
    return run_task(PROGRAMS[name].config, lambda config: _run(name, config, others), [*words, *chosen])


def read_settings(name: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Any:
    """The checked settings of a program, which does not run; see :func:`run_program`."""
    chosen, others = split_choices(values or {})
    program = PROGRAMS[name]
    return run_task(
        program.config,
        lambda config: checked_settings(program.settings, _options(program, config, others)[1]),
        [*words, *chosen],
    )


def run_task(config_name: str, task: Callable[[DictConfig], Any], words: Sequence[str]) -> Any:
    """The task's result for `conf/<config_name>.yaml` with words of a command line, from Python."""
    before = Singleton.get_state()
    try:
        GlobalHydra.instance().clear()
        vars(current_run).update(vars(RunState()))
        _register()
        words = rewrite_arguments(words, config_name)
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose(config_name, words, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        config = deepcopy(config)  # Hydra's own options are read from the other one
        with read_write(config), open_dict(config):
            del config["hydra"]
        current_run.config = config
        log_to_stderr()
        return task(config)
    except Exception as error:
        if (explained_error := _user_error(error, words)) is not error:
            raise explained_error from error
        raise
    finally:
        Singleton.set_state(before)


def _run(name: str, config: DictConfig, values: Mapping[str, Any]) -> Any:
    """Run the program with the composed configuration and the values."""
    program = PROGRAMS[name]
    current_run.run = None  # of an earlier job of a sweep
    config, options, overrides = _options(program, config, values)
    current_run.config = config
    arguments: list[Any] = []
    if name == "train":
        if (of_run := call_of(options, config, overrides)) is None:
            return float("nan")
        options, *arguments = of_run
    settings = (
        checked_settings(program.settings, options) if program.has_torch else check(program.settings, options)
    )
    return getattr(import_module(f"idiomtune.programs.{name}"), name)(settings, *arguments)


def _options(
    program: Program, config: DictConfig, values: Mapping[str, Any]
) -> tuple[DictConfig, dict[str, Any], list[str]]:
    """The composed configuration with the values; the same resolved; the overrides, for the record."""
    options = plain_values(values)
    overrides = [*HydraConfig.get().overrides.task, *given_options(values)]
    if program.settings is TrainSettings and any(o.lstrip("+").startswith("resume=") for o in overrides):
        options |= plain_values({"resume": find_run(overrides)})
    config = with_values(config, options)
    return config, _resolve(config, overrides), overrides


def checked_settings(kind: type[Settings], config: dict[str, Any]) -> Settings:
    """The checked settings of a program; slow imports (torch) follow the check.

    Tables that an earlier program of this process has read are read again: they may have changed since.

    Raises:
        UserError: naming each option that is wrong, before anything heavy is imported.
    """
    settings = check(kind, config)
    from idiomtune.data.user.load import forget_user_data

    forget_user_data()
    if isinstance(settings, TrainSettings):
        settings.objective.check_files(settings)
    return settings


def _resolve(config: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration as plain, resolved containers, without secrets.

    Raises:
        UserError: if there are any, also in Hydra's own options; if only a file has a model's code run.
    """
    resolved = to_dict(config, throw_on_missing=True)
    names = {override.lstrip("+").partition("=")[0] for override in overrides}
    model = resolved.get("model")
    refuse_recorded_code(model, "the configuration", repeats=_CODE in names, option=f"{_CODE}=true")
    refuse_values({"hydra": OmegaConf.to_container(HydraConfig.instance().cfg.hydra)})  # type: ignore[union-attr]
    return resolved


# ------------------------------------------------------------------ from the command line


def main(name: str, words: Sequence[str]) -> None:
    """A program from the command line, which ends the process if it fails.

    Its result is printed if that is a path. A :class:`UserError` or an error of Hydra's becomes a message and
    exit status 2, an interrupt status 130, any other error a short message, a traceback in a file, and status
    1. In a sweep a failed job is reported and the next one starts; the sweep's status is that of the first
    failure. With several processes only the main one has the run folder and prints; a sweep then ends with
    the first failure, which may concern one process only. `idiomtune train` alone shows its help.
    """
    if name not in PROGRAMS:
        sys.exit(import_module(f"idiomtune.programs.{name}").main(words))
    config_name = PROGRAMS[name].config
    if "--version" in words:  # Hydra would print its own
        print(f"idiomtune {__version__}")
    elif [*words] in ([], ["--help"], ["-h"]) and (words or config_name == "config"):
        print(help_text(config_name))  # not a run of hours without any option
    else:
        _main(name, config_name, list(words))


def _main(name: str, config_name: str, words: list[str]) -> None:
    wants_traceback = os.environ.get(TRACEBACKS) == "1"
    os.environ[TRACEBACKS] = "1"  # makes Hydra raise errors instead of printing a traceback
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line
    _register()
    grid: Path | None = None
    failures: list[UserError] = []  # of a run that is no job of a sweep: Hydra would add to the message

    def run(config: DictConfig) -> Any:
        _register()  # again, if a launcher runs the job in another process
        in_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            result = _run(name, config, {})
            _show(result)
            return result
        except (Exception, SystemExit) as error:  # a user's module may exit, with status 0
            remove_unused_folder()
            if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
                current_run.unexpected = error
            if in_sweep and has_peers() and not wants_traceback:
                report_error(_user_error(error))
            if not isinstance(error, UserError):
                raise
            if in_sweep:
                print_error(f"error: job {HydraConfig.get().job.num}: {error}")
                raise
            failures.append(error)
            return None

    try:
        words = rewrite_arguments(words, config_name)
        if rank_of_launch():
            words += follower_arguments()
        elif config_name == "config" and (folder := grid_by_name(words)) is not None:
            grid = Path(folder) if folder else new_sweep_folder(words)
            words += [] if folder else [f"hydra.sweep.dir={quote_value(str(grid))}"]
        sys.argv[1:] = words
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
        finally:
            if grid is not None and grid.is_dir():
                _show_sweep(grid)
        for failure in failures:
            raise failure
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        is_hydras_end = isinstance(error, SystemExit) and error is not current_run.unexpected
        if is_hydras_end or (wants_traceback and isinstance(error, Exception)):
            raise
        sys.exit(report_error(_user_error(error, words)))


def _show(result: Any) -> None:
    """Print the path that a program returns; of a run, its folder."""
    path = current_run.run.path if current_run.run is not None else result
    if isinstance(path, Path) and rank_of_launch() == 0:
        print(printable(str(path)))


def follower_arguments() -> list[str]:
    """Overrides that keep Hydra from recording anything in processes other than the main one."""
    folder = tempfile.mkdtemp(prefix="idiomtune-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [f"hydra.sweep.dir='{folder}'", "hydra/job_logging=follower"]


def _show_sweep(folder: Path) -> None:
    """The table of a grid's jobs, also if some have failed; a search shows its own."""
    from idiomtune.reports.screens import show_finished_sweep

    try:
        show_finished_sweep(folder)
    except Exception as error:  # it must not hide how the jobs ended
        print_error(f"the table of {folder} could not be shown: {type(error).__name__}: {error}")


def _register() -> None:
    register_resolvers()
    register()


def _user_error(error: BaseException, words: Sequence[str] = ()) -> BaseException:
    """An error of Hydra's, or of a lost process, as a :class:`UserError`; any other unchanged."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return UserError(hide_secrets(hydra_message(error)))
    if not isinstance(error, Exception) or isinstance(error, UserError):
        return error
    if has_peers() and is_lost_peer(error):
        return UserError("another process of this launch ended; see its message")
    if error is not current_run.unexpected:  # raised by Hydra
        if isinstance(error, OSError) and error.filename is not None:
            return UserError(f"the folder of the run cannot be written: {error}")
        if current_run.config is None:  # a mistake that Hydra does not expect, such as `=3`
            return UserError(f"the command line could not be understood ({' '.join(words)}): {error}")
    return error
