"""Programs whose options need no configuration: help, messages and exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from train.cli.ending import TRACEBACKS, report_error


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
