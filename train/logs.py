"""Messages for people, on stderr."""

import logging
import sys
from typing import TextIO


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the moment of writing, so that a progress bar can stand aside."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)
