"""Messages for people, on stderr and in the run's log."""

import logging
import sys
from typing import TextIO

from train.text import printable


class Formatter(logging.Formatter):
    """Messages repeat what stands in data: a terminal is to show it, not to obey it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the moment of writing, so that a progress bar can stand aside."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)
