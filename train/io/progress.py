"""Progress bars on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from train.distributed.processes import rank_of_launch

_shown: Progress | None = None  # one for all bars: two would write over each other


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar by a number of items; the bar vanishes at the end.

    A bar opened while another is shown stands below it.
    """
    global _shown
    if rank_of_launch() or (not sys.stderr.isatty() and _shown is None):
        yield lambda _: None
        return
    outermost = _shown is None
    if _shown is None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        _shown = Progress(*columns, console=Console(stderr=True), transient=True)
        _shown.start()
    progress = _shown
    task = progress.add_task(what, total=total)
    try:
        yield lambda count: progress.advance(task, count)
    finally:
        progress.remove_task(task)
        if outermost:
            progress.stop()
            _shown = None
