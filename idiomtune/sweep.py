"""Several runs of one command (`idiomtune train -m …`), which Hydra starts: a process of its own.

A failed job is reported and the next one starts; the exit status is that of the first failure. With several
processes a sweep ends with the first failure, which may concern one process only.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from idiomtune.cli import TRACEBACKS, print_error, report_error, train
from idiomtune.config.compose import fill, hydra_message
from idiomtune.errors import UserError
from idiomtune.io.files import printable
from idiomtune.io.processes import has_peers, rank_of_launch
from idiomtune.io.secrets import hide_secrets
from idiomtune.io.terminal import log_to_stderr
from idiomtune.plugins.models import CONF
from idiomtune.training.run_folder import remove_if_empty
from idiomtune.training.start import run_of_job

_FOLDER = "hydra.sweep.dir="


def main() -> None:
    """Start the runs of the command line, and show their scores in the end."""
    wants_traceback = os.environ.get(TRACEBACKS) == "1"
    os.environ[TRACEBACKS] = "1"  # makes Hydra raise errors instead of printing a traceback
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line

    def job(config: DictConfig) -> float:
        return _run_job(config, ends_launch=has_peers() and not wants_traceback)

    status = 0
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(job)()
    except (Exception, KeyboardInterrupt) as error:
        if wants_traceback and isinstance(error, Exception):
            raise
        status = report_error(_explain(error))
    is_search = any("sweeper=" in word or word.startswith("+sweep=") for word in sys.argv)  # shows itself
    folders = [Path(w.removeprefix(_FOLDER).strip("'")) for w in sys.argv if w.startswith(_FOLDER)]
    if folders and not is_search:
        _show(folders[-1])
    sys.exit(status)


def _run_job(config: DictConfig, *, ends_launch: bool) -> float:
    """A job of the sweep: the monitored score of its run, for a search."""
    log_to_stderr()
    options = HydraConfig.get()
    try:
        composed = fill(OmegaConf.create({"hydra": options, **config}))
        if (run := run_of_job(composed)) is None:
            print(f"{options.runtime.output_dir}: this job is finished, and is skipped", file=sys.stderr)
            return float("nan")
        score = train(*run)
        if rank_of_launch() == 0:
            print(printable(str(run[0].path)))
        return score
    except (Exception, SystemExit) as error:  # a user's module may exit, with status 0
        remove_if_empty(Path(options.runtime.output_dir), with_parents=False)
        if ends_launch:
            report_error(_explain(error))
        if isinstance(error, UserError):
            print_error(f"error: job {options.job.num}: {error}")
        raise


def _explain(error: BaseException) -> BaseException:
    """An error of Hydra's as a :class:`UserError`; any other unchanged."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return UserError(hide_secrets(hydra_message(error)))
    return error


def _show(folder: Path) -> None:
    """The table of a grid's jobs, also if some have failed. Without any, the folder is removed."""
    if rank_of_launch() or not folder.is_dir():
        return
    if {path.name for path in folder.iterdir()} <= {"multirun.yaml"}:
        (folder / "multirun.yaml").unlink(missing_ok=True)
        remove_if_empty(folder, with_parents=True)
        return
    from idiomtune.reports.screens import show_finished_sweep

    try:
        show_finished_sweep(folder)
    except Exception as error:  # it must not hide how the jobs ended
        print_error(f"the table of {folder} could not be shown: {type(error).__name__}: {error}")
