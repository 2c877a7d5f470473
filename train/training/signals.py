"""SIGINT and SIGTERM end a run in an orderly way."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from train.errors import Interrupted

log = logging.getLogger(__name__)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM set a flag, which is checked between steps; a second SIGINT stops at once.

    A second SIGTERM does not: a scheduler sends one to every process, and the launcher forwards its own.

    Yields:
        Whether the run was asked to stop.
    """
    received: list[int] = []

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        if not received:
            log.info("%s: stopping after this step", signal.Signals(number).name)
        received.append(number)

    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Within this context SIGTERM raises :class:`Interrupted`, as SIGINT raises KeyboardInterrupt.

    Only the first one does: a scheduler sends one to every process, and the launcher forwards its own. The
    training loop finishes its step instead, see :func:`stop_requests`.
    """

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted("stopped by SIGTERM")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
