"""Log messages, on stderr and in a run's log file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from train.io.text import printable


class Formatter(logging.Formatter):
    """Escapes control characters, since messages quote data: a terminal should show them, not obey them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, above the progress bars that are shown there."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        bars = sys.modules.get("tqdm")  # there is no bar before it is imported, which takes a while
        with bars.tqdm.external_write_mode() if bars else nullcontext():
            super().emit(record)


def log_to_stderr() -> None:
    """Show messages as programs do that Hydra starts (`conf/hydra/job_logging/console.yaml`)."""
    handler = StderrHandler()
    handler.setFormatter(Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


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
