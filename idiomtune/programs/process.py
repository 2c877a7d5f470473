"""One program at a time in a process, whose state is restored; interrupts that stay interrupts.

Imports nothing heavy: a program is refused at once while another one runs.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from copy import copy
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from idiomtune.errors import IN_PYTHON, UserError

# How often a thread of GNU's OpenMP looks whether the others are done before it sleeps. By default 300,000
# times: beside another program it waits for threads that do not run, and keeps these from running. Read once,
# when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

P = ParamSpec("P")
T = TypeVar("T")

_RUNNING = threading.Lock()


class Interrupts:
    """Within this context Ctrl-C always raises KeyboardInterrupt, also while modules are imported.

    Other code may turn the interrupt into an error of its own; what is then raised is the interrupt.
    """

    _handler: Any = None
    _was_raised = False

    def __enter__(self) -> None:
        # Other threads receive no signals.
        if _is_main_thread() and callable(handler := signal.getsignal(signal.SIGINT)):
            self._handler = handler
            signal.signal(signal.SIGINT, self._receive)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._was_raised and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._was_raised = True
        self._handler(number, frame)
        self._was_raised = False  # a handler of the user's has only noted it


def run_alone(function: Callable[P, T]) -> Callable[P, T]:
    """A program as a function that runs alone in this process, and restores the process's state.

    Raises:
        UserError: if another one runs.
    """

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> T:
        with Interrupts():
            if not _RUNNING.acquire(blocking=False):
                raise UserError("another run is in progress in this process: wait for it, or use another one")
            state = ExitStack()
            state.callback(_RUNNING.release)
            state.callback(IN_PYTHON.reset, IN_PYTHON.set(True))
            try:
                _keep(state)
                return function(*args, **options)
            except (UserError, KeyboardInterrupt) as error:
                raise error.with_traceback(None) from None  # whose message says all, without our insides
            finally:
                state.close()

    return run


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _keep(state: ExitStack) -> None:
    """Let the stack restore, when it closes, the process state that programs and libraries change."""
    import numpy as np

    keep = state.callback
    state.enter_context(warnings.catch_warnings())
    keep(random.setstate, random.getstate())
    keep(np.random.set_state, np.random.get_state())
    keep(_set_generators, {generator: generator.get_state() for generator in _generators()})
    if torch := sys.modules.get("torch"):
        keep(torch.set_num_threads, torch.get_num_threads())
        keep(torch.set_grad_enabled, torch.is_grad_enabled())
        keep(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        keep(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
    for logger in [logging.root, *logging.root.manager.loggerDict.copy().values()]:
        if isinstance(logger, logging.Logger):
            keep(_set_level, logger, logger.level)
            names = ("handlers", "filters", "propagate", "disabled")
            keep(vars(logger).update, {name: copy(getattr(logger, name)) for name in names})
    keep(logging.disable, logging.root.manager.disable)
    keep(os.environ.update, dict(os.environ))
    keep(lambda names: [os.environ.pop(name) for name in {*os.environ} - names], {*os.environ})
    for name in ("argv", "path"):
        keep(setattr, sys, name, values := getattr(sys, name))
        keep(values.__setitem__, slice(None), [*values])
    with suppress(FileNotFoundError):  # the folder is gone
        keep(os.chdir, os.getcwd())  # noqa: PTH109  as it is spelt
    keep(os.umask, mask := os.umask(0o077))  # it can only be read by setting it
    os.umask(mask)
    keep(gc.enable if gc.isenabled() else gc.disable)
    if _is_main_thread() and (handler := signal.getsignal(signal.SIGTERM)) is not None:
        keep(signal.signal, signal.SIGTERM, handler)  # that of SIGINT is put back where it is replaced


def _set_level(logger: logging.Logger, level: int) -> None:
    if logger.level != level:  # each call empties the caches of all loggers
        logger.setLevel(level)


def _generators() -> list[Any]:
    """Torch's random generators, of the CPU and of the GPUs, as far as they are in use."""
    if (torch := sys.modules.get("torch")) is None:
        return []
    return [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]


def _set_generators(states: dict[Any, Any]) -> None:
    """Set generators to these states; those that have come into use since, as torch begins."""
    for generator in _generators():
        torch = sys.modules["torch"]
        begin = torch.Generator(generator.device).get_state()
        generator.set_state(states.get(generator, begin))
        if not torch.cuda.is_initialized():  # until it starts, torch only notes a seed for it
            torch.cuda.manual_seed_all(torch.initial_seed())
