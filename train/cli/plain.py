"""Programs whose options need no configuration: help, messages and exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from train.errors import UserError

ENDED_BY_CTRL_C = 130  # as shells have it


def run_plain(program: Callable[[Sequence[str]], int], arguments: Sequence[str], help_text: str) -> int:
    """The exit status: the program's own, 2 for what the user can mend, which is told in one message."""
    if "--help" in arguments or "-h" in arguments:
        print(help_text)
        return 0
    try:
        return program(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return ENDED_BY_CTRL_C
