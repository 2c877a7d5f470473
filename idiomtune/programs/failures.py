"""How a program ends: an error becomes a message and an exit status, the same for all programs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idiomtune.errors import UserError
from idiomtune.io.files import printable, write_text
from idiomtune.io.processes import has_peers, rank_of_launch
from idiomtune.io.secrets import hide_secrets, refuse_arguments

if TYPE_CHECKING:
    from idiomtune.training.run_folder import RunFolder


@dataclass
class RunState:
    """The state of this start, also after Hydra has cleared its own.

    Attributes:
        config: the configuration, once it is composed.
        unexpected: an error of the task that the user cannot fix.
        run: the run folder.
    """

    config: Any = None
    unexpected: BaseException | None = None
    run: RunFolder | None = None


current_run = RunState()


TRACEBACKS = "HYDRA_FULL_ERROR"  # the environment variable; 1 = errors are raised, with their traceback
MISTAKE = 2  # exit status after an error that the user can fix
_INTERRUPTED = 130  # exit status, as of a shell command that Ctrl-C ended
_AFTER_THE_FIRST = 5  # seconds that a process waits, so that an error common to all is printed once


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

    status = unexpected
    if mistake := error if isinstance(error, UserError) else system_failure(error):
        message = f"error: {_process()}{mistake}"
        status = MISTAKE
    elif isinstance(error, KeyboardInterrupt):
        message, status = f"interrupted: {error}" if str(error) else "interrupted", _INTERRUPTED
    else:
        message = f"error: {_process()}unexpected {type(error).__name__}: {error}\n"
        message += f"The traceback is in {_write_traceback(''.join(traceback.format_exception(error)))}"
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


def _process() -> str:
    return f"process {rank_of_launch()}: " if has_peers() else ""


def _write_traceback(text: str) -> Path:
    """Write to the run's folder if there is one, else to a temporary file; without secrets."""
    text = hide_secrets(text)
    try:
        if current_run.run is not None and (current_run.run.path / "run.json").is_file():
            path = current_run.run.path / "error.log"
            write_text(path, text)
            return path
    except OSError:
        pass
    descriptor, name = tempfile.mkstemp(prefix="idiomtune-error-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


def run_plain(
    program: Callable[[Sequence[str]], int], arguments: Sequence[str], help_text: str, unexpected: int = 1
) -> int:
    """The exit status: the program's own, or as :func:`report_error` gives it."""
    if "--help" in arguments or "-h" in arguments:
        print(help_text)
        return 0
    try:
        return program(arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if os.environ.get(TRACEBACKS) == "1" and isinstance(error, Exception):
            raise
        return report_error(error, unexpected)


def names_and_options(
    arguments: Sequence[str], options: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """The names (of runs, models) among the arguments, and the values of each given option, in their order.

    Raises:
        UserError: for an unknown option, or a secret.
    """
    refuse_arguments(arguments)
    names: list[str] = []
    options_of: dict[str, list[str]] = {}
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option in options:
            options_of.setdefault(option, []).append(value)
        elif argument.startswith("-") or (equals and not Path(argument).exists()):  # a folder's may hold "="
            from idiomtune.config.validation import nearest  # only for a message: it takes a while

            near = "".join(f" (is it {name}=?)" for name in nearest(option, options))
            every = ", ".join(f"{name}=" for name in options)
            raise UserError(f"{argument}: unknown option{near}; there are {every}")
        else:
            names.append(argument)
    return names, options_of


def split_names(text: str) -> list[str]:
    """The names in `a,b` or `[a,b]`."""
    return [name for name in text.strip("[]").split(",") if name]
