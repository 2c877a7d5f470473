"""Messages for people, on stderr and in a run's own file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from train.io.text import printable


class Formatter(logging.Formatter):
    """Messages repeat what stands in data: a terminal is to show it, not to obey it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the moment of writing, so that a progress bar can stand aside."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """In here all messages also go to the end of a file, in the form in which they go to stderr.

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
        with suppress(OSError):  # a full disk: what could not be written is lost with it
            handler.close()
