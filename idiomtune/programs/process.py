"""One program at a time in a process, which is afterwards as it was; an interrupt that leaves no halves.

Imports nothing heavy: a program is refused at once while another one runs.
"""

from __future__ import annotations

import _thread
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, suppress
from copy import copy
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from idiomtune.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")

_RUNNING = threading.Lock()
# What is finished before an interrupt is raised: a library that is imported by half can't be imported again.
_WHOLE = {
    ("importlib._bootstrap", "_find_and_load"),
    ("idiomtune.config.compose", "compose_config"),
    ("idiomtune.programs.launch", "_composed"),
    ("idiomtune.programs.launch", "_plain"),
    ("hydra._internal.config_loader_impl", "load_configuration"),
    ("hydra.core.singleton", "set_state"),
    (__name__, "_keep"),
    (__name__, "_put_back"),
}
_PAUSE = 0.05  # seconds until an interrupt that had to wait is tried again
_MOST_PAUSES = 1200  # an import that hangs is interrupted after a minute
_LOGGERS = ("handlers", "filters", "propagate", "disabled")


class Interrupts:
    """Within this context Ctrl-C waits for what must not be left in halves, and is always KeyboardInterrupt.

    Other code may turn the interrupt into an error of its own; what is then raised is the interrupt.
    """

    _handler: Any = None
    _outermost: FrameType | None = None
    _is_waiting = _was_raised = False
    _num_pauses = 0

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()  # others receive no signals
        if is_main and callable(handler := signal.getsignal(signal.SIGINT)):
            self._handler, self._outermost = handler, sys._getframe(1)
            signal.signal(signal.SIGINT, self._receive)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._handler is None:
            return
        self._outermost = None
        signal.signal(signal.SIGINT, self._handler)
        if self._was_raised and isinstance(error, Exception):
            raise KeyboardInterrupt from error
        if self._is_waiting:
            self._is_waiting = False
            self._handler(signal.SIGINT, sys._getframe())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        must_wait, above = frame is not None and frame.f_globals is globals(), frame
        while above is not None and above is not self._outermost and not must_wait:
            must_wait = (above.f_globals.get("__name__"), above.f_code.co_name) in _WHOLE
            above = above.f_back
        if not must_wait or self._num_pauses > _MOST_PAUSES:
            try:
                self._handler(number, frame)
            except KeyboardInterrupt:
                self._was_raised = True
                raise
        elif not self._is_waiting:
            self._is_waiting = True
            self._num_pauses += 1
            _thread.start_new_thread(self._try_again, ())  # a Thread takes locks, which this one may hold

    def _try_again(self) -> None:
        time.sleep(_PAUSE)
        if self._is_waiting:
            self._is_waiting = False
            _thread.interrupt_main()


def alone(function: Callable[P, T]) -> Callable[P, T]:
    """A program as a function, which runs while no other one does in this process, and puts its state back.

    Raises:
        UserError: if another one runs.
    """

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> T:
        with Interrupts():
            if not _RUNNING.acquire(blocking=False):
                raise UserError(
                    f"{function.__name__}: another run is in progress in this process; wait until it has "
                    "ended, or start this one in a process of its own"
                )
            state = ExitStack()
            state.callback(_RUNNING.release)
            try:
                _keep(state)
                return function(*args, **options)
            finally:
                _put_back(state)

    return run


def _put_back(state: ExitStack) -> None:
    state.close()


def _keep(state: ExitStack) -> None:
    """Have the stack put back, when it is closed, what programs and libraries change of a process."""
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
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        is_on = torch.are_deterministic_algorithms_enabled()
        keep(torch.use_deterministic_algorithms, is_on, warn_only=warn_only)
    for logger in [logging.root, *logging.root.manager.loggerDict.copy().values()]:
        if isinstance(logger, logging.Logger):
            keep(logger.setLevel, logger.level)
            keep(vars(logger).update, {name: copy(getattr(logger, name)) for name in _LOGGERS})
    keep(logging.disable, logging.root.manager.disable)
    keep(_set_items, os.environ, dict(os.environ))
    for name in ("argv", "path"):
        keep(setattr, sys, name, values := getattr(sys, name))
        keep(values.__setitem__, slice(None), [*values])
    with suppress(FileNotFoundError):  # the folder is gone
        keep(os.chdir, os.getcwd())  # noqa: PTH109  as it is spelt
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    keep(os.umask, mask)
    keep(gc.enable if gc.isenabled() else gc.disable)
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if threading.current_thread() is threading.main_thread() and handler is not None:
            keep(signal.signal, number, handler)


def _set_items(items: MutableMapping[str, str], before: dict[str, str]) -> None:
    for name in items.keys() - before.keys():
        del items[name]
    items.update({name: value for name, value in before.items() if items.get(name) != value})


def _generators() -> list[Any]:
    """Torch's random generators, of the CPU and of the GPUs, as far as they are in use."""
    if (torch := sys.modules.get("torch")) is None:
        return []
    return [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]


def _set_generators(states: dict[Any, Any]) -> None:
    """Set generators to these states; those that have come into use since, as torch begins."""
    for generator in _generators():
        torch = sys.modules["torch"]
        start = states.get(generator)
        generator.set_state(torch.Generator(generator.device).get_state() if start is None else start)
        if not torch.cuda.is_initialized():  # until it starts, torch only notes a seed for it
            torch.cuda.manual_seed_all(torch.initial_seed())
