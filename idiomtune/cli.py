"""The one way in: from words and values to settings, and to a program's result.

`idiomtune train …`, `python -m train …` and `idiomtune.train(…)` are the same call. Imports nothing heavy:
`--help` and wrong options answer without waiting for torch.

The current folder is searched, last, for what `extensions=` names, and for nothing else: somebody else may
have put modules there that have the names of packages.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from idiomtune.config import settings as kinds
from idiomtune.config import validate
from idiomtune.config import words as grammar
from idiomtune.config.compose import Composed, by_hydra, explaining_errors, fill
from idiomtune.config.validation import nearest
from idiomtune.errors import UserError
from idiomtune.io.files import printable
from idiomtune.io.processes import has_peers, is_lost_peer, rank_of_launch
from idiomtune.io.secrets import hide_secrets
from idiomtune.io.terminal import log_to_stderr
from idiomtune.io.version import __version__
from idiomtune.plugins.models import CONF
from idiomtune.plugins.options import ConfigSection
from idiomtune.training.resume import find_run
from idiomtune.training.run_folder import RunFolder, remove_if_empty
from idiomtune.training.start import new_sweep_folder, run_of, run_of_job

MISTAKE = 2  # exit status after an error that the user can fix
_INTERRUPTED = 130  # exit status, as of a shell command that Ctrl-C ended
_AFTER_THE_FIRST = 5  # seconds that a process waits, so that an error common to all is printed once
_SWEEP_FOLDER = "hydra.sweep.dir="


class Program(NamedTuple):
    """A program: the function `<last word>` of the module `idiomtune.programs.<first word>`.

    Attributes:
        config: `conf/<config>.yaml`: options and defaults. Its comments are the help, the first sentence is
            what `idiomtune --help` says of the program.
        subject: the option of the first words.
        settings: the options, checked, which the function gets.
    """

    config: str
    subject: str
    settings: type[ConfigSection]


PROGRAMS = {
    "new": Program("tools/new", "folder", kinds.NewSettings),
    "train": Program("train", "+experiment", kinds.TrainSettings),
    "check": Program("train", "+experiment", kinds.TrainSettings),
    "evaluate": Program("evaluate", "model", kinds.EvaluateSettings),
    "learn": Program("learn", "model", kinds.LearnSettings),
    "glossary": Program("glossary", "from", kinds.GlossarySettings),
    "find": Program("tools/find", "texts", kinds.FindSettings),
    "search": Program("tools/search", "model", kinds.TextSearchSettings),
    "write": Program("tools/write", "expressions", kinds.WriteSettings),
    "write select": Program("tools/select", "from", kinds.SelectSettings),
    "write review": Program("tools/review", "folder", kinds.ReviewSettings),
    "report": Program("tools/report", "runs", kinds.ReportSettings),
    "explore": Program("tools/explore", "models", kinds.ExploreSettings),
    "push": Program("push", "checkpoint", kinds.PushSettings),
}


# ------------------------------------------------------------------ words and values → settings → result


def run(name: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Any:
    """A program's result; of `train` the folder of the run.

    Args:
        words: options as on the command line, of one run.
        values: the same as nested values, which come after them.

    Raises:
        UserError: for everything that the user can fix.
    """
    log_to_stderr()
    composed = configuration(name, words, values)
    if name != "train":
        return _start(name, composed.options)
    folder, options = run_of(composed)
    _start(name, options, folder)
    return folder.path


def read_settings(name: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Any:
    """The checked settings of a program, which does not run; see :func:`run`."""
    return settings_of(PROGRAMS[name].settings, configuration(name, words, values).options)


def configuration(name: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Composed:
    """The configuration of a program; see :func:`run`."""
    flags, words = grammar.split_flags(words)
    if search := next((word for word in words if word.startswith("+sweep=")), None):
        raise UserError(f"{search} is a search, which makes several runs: idiomtune train -m {search} …")
    chosen, others = grammar.split_choices(values or {})
    config, subject, _ = PROGRAMS[name]
    overrides = grammar.overrides_of([*words, *chosen], config, subject, flags.get("--config-dir"))
    composed = fill(by_hydra(config, overrides), others)
    if composed.options.get("resume") is not None:
        composed.options["resume"] = find_run(composed.overrides)
    return composed


def settings_of(kind: type[ConfigSection], options: dict[str, Any]) -> Any:
    """The checked settings; slow imports (torch) follow the check.

    Tables that an earlier program of this process has read are read again: they may have changed since.

    Raises:
        UserError: naming each option that is wrong, before anything heavy is imported.
    """
    settings = validate(kind, options)
    from idiomtune.data.user.load import forget_user_data

    forget_user_data()
    if isinstance(settings, kinds.TrainSettings):
        settings.objective.check_files(settings.data)
    return settings


def _start(name: str, options: dict[str, Any], *run: RunFolder) -> Any:
    """What the program returns; of `train`, which has the folder of the run, its monitored score."""
    settings = settings_of(PROGRAMS[name].settings, options)  # before torch is imported
    module, *_ = words = name.split()
    return getattr(import_module(f"idiomtune.programs.{module}"), words[-1])(settings, *run)


# ------------------------------------------------------------------ from the command line


def main(words: Sequence[str] | None = None) -> None:
    """The program that the first word names, with the others (of the command line, if none are given).

    Its result is printed if that is a path or a text. A :class:`UserError` becomes a message and exit status
    2, an interrupt status 130, any other error a short message, a traceback in a file, and status 1. Of
    several processes only the main one has the run folder and prints. `idiomtune train` alone shows its help.
    """
    name, *arguments = (sys.argv[1:] if words is None else words) or ["--help"]
    if arguments and f"{name} {arguments[0]}" in PROGRAMS:
        name, arguments = f"{name} {arguments[0]}", arguments[1:]
    if name in ("-h", "--help"):
        print(_programs_help())
    elif name == "--version" or "--version" in arguments:
        print(f"idiomtune {__version__}")
    elif name not in PROGRAMS:
        near = "".join(f"did you mean idiomtune {program}? " for program in nearest(name, [*PROGRAMS]))
        message = f"idiomtune has no program {name!r}: {near}there are {', '.join(PROGRAMS)}"
        sys.exit(report_error(UserError(message)))
    elif {"--help", "-h"} & {*arguments} or (name == "train" and not arguments):
        print(help_text(PROGRAMS[name].config))
    else:
        sys.exit(_exit_status(name, arguments))


def _exit_status(name: str, words: Sequence[str]) -> int:
    """Run a program, and print the path or the last line that it returns."""
    try:
        flags, others = grammar.split_flags(words)
        if "-m" in flags:
            _sweep(name, others, flags.get("--config-dir"))
        elif "--cfg" in flags:
            print(OmegaConf.to_yaml(configuration(name, words).config), end="")
        else:
            result = run(name, words)
            result, outcome = result if isinstance(result, tuple) else (result, "passes")
            if isinstance(result, Path | str) and rank_of_launch() == 0:
                print(printable(str(result)))
            return {"fails": 1, "cannot tell": 3}.get(outcome, 0)
        return 0
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if _wants_traceback() and isinstance(error, Exception):
            raise
        return report_error(error, unexpected=MISTAKE if name == "report" else 1)  # 1: a score fails


def help_text(config_name: str) -> str:
    """The comments of `conf/<config_name>.yaml`: those at its beginning, then each option with its own."""
    text = (CONF / f"{config_name}.yaml").read_text(encoding="utf-8").partition("\nhydra:")[0]
    head, options = re.split(r"^(?!#)", text, maxsplit=1, flags=re.MULTILINE)
    head = re.sub("^# ?", "", head, flags=re.MULTILINE).rstrip("\n")
    for group in ("model", "experiment", "sweep"):
        names = " | ".join(choice for choice in grammar.config_names(group) if choice != "pretrained")
        names = textwrap.fill(names, width=105, subsequent_indent=" " * 15, break_on_hyphens=False)
        head = head.replace(f"<{group}s of conf>", names)
    options = re.sub(r"^defaults:\n(  .*\n)+", "", options, flags=re.MULTILINE).strip("\n")
    return f"{head}\n\n{options}"


def _programs_help() -> str:
    purposes = {name: re.split(r"[.:]\s", help_text(program.config))[0] for name, program in PROGRAMS.items()}
    purposes["check"] = "Check a configuration and its data, in seconds"
    lines = [f"  {name:13} {' '.join(purpose.split())}" for name, purpose in purposes.items()]
    return "\n".join(["idiomtune <program> [option=value ...]", "", *lines, "", "idiomtune <program> --help"])


# ------------------------------------------------------------------ several runs of one command


def _sweep(name: str, words: Sequence[str], config_dir: str | None) -> None:
    """Start the runs by Hydra, and show their scores in the end.

    A failed job is reported and the next one starts; the first failure is raised in the end. With several
    processes a sweep ends with the first failure, which may concern one process only.
    """
    if name != "train":
        raise UserError("-m: makes several runs of idiomtune train alone")
    overrides = grammar.overrides_of(words, "train", PROGRAMS["train"].subject, config_dir, several=True)
    folders = [o.removeprefix(_SWEEP_FOLDER).strip("'") for o in overrides if o.startswith(_SWEEP_FOLDER)]
    is_search = any(o.startswith("+sweep=") or "sweeper=" in o for o in overrides)  # its folder is of conf/
    if rank_of_launch() or not (folders or is_search):
        # Hydra records in a temporary one what the main process records in the sweep's.
        folders = [tempfile.mkdtemp() if rank_of_launch() else str(new_sweep_folder(overrides))]
        overrides.append(f"{_SWEEP_FOLDER}{grammar.quote_value(folders[-1])}")
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line
    try:
        with explaining_errors(), initialize_config_dir(str(CONF), version_base="1.3"):
            GlobalHydra.instance().hydra.multirun("train", _run_job, overrides)  # type: ignore[union-attr]
    finally:
        for folder in folders[-1:]:
            _show_sweep(Path(folder))


def _run_job(config: DictConfig) -> float:
    """A job of the sweep: the monitored score of its run, for a search."""
    log_to_stderr()
    options = HydraConfig.get()
    try:
        composed = fill(OmegaConf.create({"hydra": options, **config}))
        if (run := run_of_job(composed)) is None:
            print(f"{options.runtime.output_dir}: this job is finished, and is skipped", file=sys.stderr)
            return float("nan")
        score: float = _start("train", run[1], run[0])
        if rank_of_launch() == 0:
            print(printable(str(run[0].path)))
        return score
    except (Exception, SystemExit) as error:
        remove_if_empty(Path(options.runtime.output_dir), with_parents=False)
        if has_peers() and not _wants_traceback():
            report_error(error)
        if isinstance(error, UserError):
            print_error(f"error: job {options.job.num}: {error}")
        if isinstance(error, SystemExit):  # of a user's module: Hydra would end the sweep, with its status
            raise RuntimeError(f"a module ended the job by SystemExit: {error}") from error
        raise


def _show_sweep(folder: Path) -> None:
    """The table of a grid's jobs, also if some have failed. Without any, the folder is removed."""
    record = folder / "multirun.yaml"  # of Hydra; a search has none, and shows its trials itself
    if rank_of_launch():
        shutil.rmtree(folder, ignore_errors=True)
    elif record.is_file() and [*folder.iterdir()] == [record]:
        record.unlink()
    if not record.is_file():
        remove_if_empty(folder, with_parents=True)
        return
    from idiomtune.reports.screens import show_finished_sweep

    show_finished_sweep(folder)


# ------------------------------------------------------------------ how a program ends


def _wants_traceback() -> bool:
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def report_error(error: BaseException, unexpected: int = 1) -> int:
    """Print the message of the error that ends the program; of several processes, this one ends here.

    A :class:`UserError` is its own message; failures of disk and memory are put into words. Of an unexpected
    error the traceback is written to a file.

    Args:
        unexpected: the exit status after an unexpected error.

    Returns:
        The exit status: 2 after a :class:`UserError` or such a failure, 130 after an interrupt.
    """
    from idiomtune.training.interrupts import system_failure  # heavier than all else that prints a message

    if has_peers() and isinstance(error, Exception) and is_lost_peer(error):
        error = UserError("another process of this launch ended; see its message")
    status = unexpected
    process = f"process {rank_of_launch()}: " if has_peers() else ""
    if mistake := error if isinstance(error, UserError) else system_failure(error):
        message, status = f"error: {process}{mistake}", MISTAKE
    elif isinstance(error, KeyboardInterrupt):
        message, status = f"interrupted: {error}" if str(error) else "interrupted", _INTERRUPTED
    else:
        message = f"error: {process}unexpected {type(error).__name__}: {error}\n"
        message += f"The traceback is in {_write_traceback(error)}"
    if has_peers() and (rank_of_launch() or "another process" in message):
        time.sleep(_AFTER_THE_FIRST)  # the launcher ends the others once one has ended
        if rank_of_launch() and status == _INTERRUPTED:  # the main process reports it, and still has to save
            os._exit(status)
    print_error(message)
    if has_peers():
        os._exit(status)  # the others may be waiting for this process
    return status


def print_error(message: str) -> None:
    """Print to standard error, safe for a terminal, without secrets."""
    print(printable(hide_secrets(message)), file=sys.stderr, flush=True)


def _write_traceback(error: BaseException) -> Path:
    """A file with the traceback, without secrets: the run's own, or a temporary one."""
    for note in getattr(error, "__notes__", ()):  # of a run, which has written it
        if (path := Path(note.partition("traceback: ")[2])).is_file():
            return path
    descriptor, name = tempfile.mkstemp(prefix="idiomtune-error-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(hide_secrets("".join(traceback.format_exception(error))))
    return Path(name)


if __name__ == "__main__":
    main()
