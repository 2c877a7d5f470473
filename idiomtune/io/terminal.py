"""Log messages, on stderr and in a run's log file."""

from __future__ import annotations

import csv
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from tqdm import tqdm

from idiomtune.io.files import printable
from idiomtune.io.processes import rank_of_launch

log = logging.getLogger(__name__)

_CHATTY = [logging.getLogger(name) for name in ("httpx", "httpx2")]  # a level for each request


class Formatter(logging.Formatter):
    """Marks warnings, and escapes control characters: a terminal should show those of data, not obey them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        if record.levelno >= logging.WARNING:
            record.message = f"{record.levelname.lower()}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, above the progress bars that are shown there."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr  # `setStream` flushes the one before, which may be closed
        bars = sys.modules.get("tqdm")  # there is no bar before it is imported, which takes a while
        with bars.tqdm.external_write_mode() if bars else nullcontext():
            super().emit(record)


def log_to_stderr() -> None:
    """Show messages, one line each; of processes beside the main one of a launch, only errors.

    Nothing changes if the caller shows messages already.
    """
    handler, rank = StderrHandler(), rank_of_launch()
    process = f"process {rank}: " if rank else ""
    handler.setFormatter(Formatter(f"%(asctime)s {process}%(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.ERROR if rank else logging.INFO, handlers=[handler])
    for chatty in _CHATTY:
        chatty.setLevel(logging.WARNING)


def print_tsv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows for another program, which may stop reading: `| head` has seen enough."""
    try:
        csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows([columns, *rows])
        sys.stdout.flush()
    except BrokenPipeError:  # Python would complain again as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_note(note: str) -> None:
    """Print a line beside the rows, to standard error."""
    print(printable(f"note: {note}"), file=sys.stderr)


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Within this context all messages are also appended to a file, in the format of stderr.

    Raises:
        OSError: if it cannot be written.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    root = logging.getLogger()
    shown = next((h.formatter for h in root.handlers if isinstance(h, StderrHandler)), None)
    handler.setFormatter(shown or Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with suppress(OSError):  # a full disk: the rest of the messages is lost
            handler.close()


@contextmanager
def warnings_logged() -> Iterator[list[logging.LogRecord]]:
    """Yield a list that gets all warnings which are logged within this context."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    setattr(handler, "emit", records.append)  # noqa: B010  a method, which mypy would not have assigned
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield records
    finally:
        root.removeHandler(handler)


_LINE = "{desc}: {n} of {total} ({percentage:.0f}%){postfix}; {elapsed} elapsed, about {remaining} left"


class Advance(Protocol):
    """Report a number of finished items, and a note such as the present loss."""

    def __call__(self, count: int, /, note: str = "") -> None: ...


@contextmanager
def progress_bar(title: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Yield a function that advances the progress; a bar vanishes at the end.

    A bar opened while another is shown is below it. Only the main process shows anything.

    Args:
        title: such as `training`.
        total: number of items.
        done: items of an earlier start.
    """
    style: dict[str, Any] = {"file": sys.stderr, "dynamic_ncols": True}
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if hasattr(shell, "kernel"):  # a notebook
        style = {"file": _Cell(), "position": 0, "ncols": 100, "mininterval": 1, "delay": 2}
    elif not sys.stderr.isatty():
        # Of several bars none has another one's line to move to.
        style = {"file": _LogFile(), "bar_format": _LINE, "mininterval": 60, "delay": 60, "position": 0}
    with _Bar(
        total=total, desc=title, initial=done, leave=False, disable=rank_of_launch() > 0, smoothing=0, **style
    ) as bar:

        def advance(count: int, /, note: str = "") -> None:
            if note:
                bar.set_postfix_str(note, refresh=False)
            bar.update(count)

        yield advance


class _Bar(tqdm):  # type: ignore[misc]
    monitor_interval = 0  # no thread that redraws bars


class _Cell:
    """Shows each state of a bar that is written to it in a notebook, in the place of the last one."""

    is_shown = False

    def write(self, text: str) -> None:
        from IPython.display import publish_display_data

        state, of_bar = {"text/plain": text.strip()}, {"display_id": str(id(self))}
        publish_display_data(state, transient=of_bar, update=self.is_shown)
        self.is_shown = True


class _LogFile:
    """Logs each state of a bar that is written to it."""

    def write(self, text: str) -> None:
        if text.strip():
            log.info("%s", text.strip())
