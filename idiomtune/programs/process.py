"""One program at a time in a process.

Imports nothing heavy: a program is refused at once while another one runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from idiomtune.errors import IN_PYTHON, UserError

P = ParamSpec("P")
T = TypeVar("T")

_RUNNING = threading.Lock()


def run_alone(function: Callable[P, T]) -> Callable[P, T]:
    """A program as a function that runs alone in this process.

    Raises:
        UserError: if another one runs.
    """

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> T:
        if not _RUNNING.acquire(blocking=False):
            raise UserError("another run is in progress in this process: wait for it, or use another one")
        in_python = IN_PYTHON.set(True)
        try:
            return function(*args, **options)
        except (UserError, KeyboardInterrupt) as error:
            raise error.with_traceback(None) from None  # whose message says all, without our insides
        finally:
            IN_PYTHON.reset(in_python)
            _RUNNING.release()

    return run
