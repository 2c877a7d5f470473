"""Programs whose options need no configuration: arguments, help, messages and exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from train.errors import UserError
from train.programs.ending import TRACEBACKS, report_error


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
        UserError: for an unknown option.
    """
    names: list[str] = []
    given: dict[str, list[str]] = {}
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option in options:
            given.setdefault(option, []).append(value)
        elif argument.startswith("-") or (equals and not Path(argument).exists()):  # a folder's may hold "="
            raise UserError(f"{argument}: unknown option; there are {', '.join(f'{o}=' for o in options)}")
        else:
            names.append(argument)
    return names, given


def names_in(given: str) -> list[str]:
    """The names in `a,b` or `[a,b]`."""
    return [name for name in given.strip("[]").split(",") if name]
