"""Progress of long work: a bar on a terminal, a line in the log every minute elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tqdm import tqdm

from train.io.processes import rank_of_launch

log = logging.getLogger(__name__)

_LINE = "{desc}: {n} of {total} ({percentage:.0f}%){postfix}; {elapsed} elapsed, about {remaining} left"


class Advance(Protocol):
    """Report how many more items are done, and a note such as the present loss."""

    def __call__(self, count: int, /, note: str = "") -> None: ...


@contextmanager
def progress_bar(what: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Yield a function that advances the progress; a bar vanishes at the end.

    A bar opened while another is shown is below it. Only the main process shows anything.

    Args:
        what: the work, as `training`.
        total: number of items.
        done: items of an earlier start.
    """
    how: dict[str, Any] = {"file": sys.stderr, "dynamic_ncols": True}
    if not sys.stderr.isatty():
        how = {"file": _LogFile(), "bar_format": _LINE, "mininterval": 60, "delay": 60}
    with _Bar(
        total=total, desc=what, initial=done, leave=False, disable=rank_of_launch() > 0, smoothing=0, **how
    ) as bar:

        def advance(count: int, /, note: str = "") -> None:
            if note:
                bar.set_postfix_str(note, refresh=False)
            bar.update(count)

        yield advance


class _Bar(tqdm):  # type: ignore[misc]
    monitor_interval = 0  # no thread that redraws bars


class _LogFile:
    """Logs each state of a bar that is written to it."""

    def write(self, text: str) -> None:
        if text.strip():
            log.info("%s", text.strip())

    def flush(self) -> None:
        pass
