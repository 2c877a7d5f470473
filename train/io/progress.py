"""Progress of long work: a bar on a terminal, a line in the log every minute elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from train.distributed.processes import rank_of_launch

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 60
_shown: Progress | None = None  # one for all bars: two would write over each other


class Advance(Protocol):
    """Say how many more items are done, and how it stands."""

    def __call__(self, count: int, /, note: str = "") -> None: ...


@contextmanager
def progress_bar(what: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Yield a function that advances the progress; a bar vanishes at the end.

    A bar opened while another is shown stands below it. Only the main process shows anything.

    Args:
        what: the work, as `training`.
        total: number of items.
        done: items of an earlier start.
    """
    global _shown
    if rank_of_launch():
        yield _silent
        return
    if not sys.stderr.isatty() and _shown is None:
        yield _Lines(what, total, done)
        return
    outermost = _shown is None
    if _shown is None:
        _shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        _shown.start()
    progress = _shown
    task = progress.add_task(what, total=total, completed=done, note="")

    def advance(count: int, /, note: str = "") -> None:
        progress.advance(task, count)
        if note:
            progress.update(task, note=note)

    try:
        yield advance
    finally:
        progress.remove_task(task)
        if outermost:
            progress.stop()
            _shown = None


def _silent(count: int, /, note: str = "") -> None:
    pass


class _Lines:
    """Logs how it stands, once a minute."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self._what, self._total = what, total
        self._done = self._done_before = done
        self._start = self._last = time.monotonic()

    def __call__(self, count: int, /, note: str = "") -> None:
        self._done += count
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES or self._done >= self._total:
            return
        self._last = now
        elapsed = now - self._start
        left = elapsed / max(self._done - self._done_before, 1) * (self._total - self._done)
        log.info(
            "%s: %d of %d (%.0f%%)%s; %s elapsed, about %s left",
            self._what,
            self._done,
            self._total,
            100 * self._done / self._total,
            f", {note}" if note else "",
            _duration(elapsed),
            _duration(left),
        )


def _duration(seconds: float) -> str:
    """As `1 h 05 min`, `12 min`, `40 s`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
