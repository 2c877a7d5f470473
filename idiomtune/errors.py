"""The exceptions that users see."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from shlex import quote

IN_PYTHON = ContextVar("IN_PYTHON", default=False)  # a function of `idiomtune` was called, no command


def resume_command(run: str | Path) -> str:
    """The call or the command that resumes a run."""
    return f"it.resume({str(run)!r})" if IN_PYTHON.get() else f"idiomtune train {quote(f'resume={run}')}"


class UserError(Exception):
    """An error that the user can fix: its message says what is wrong, where, and what to do.

    The entry points print the message without a traceback and exit with a non-zero status.

    Args:
        message: what is wrong, without the place if that is given by the other arguments.
        option: that is wrong, or that named the file.
        file: that is wrong.
        row: its number, which is shown as `row 3`; or how the row is called (`line 3`, `record 2 (id i-3)`).
        field: of the row, or of the file.

    Attributes:
        option, file, row, field: as given. What is given precedes the message: `F, row 3, field 'x': …`,
            and `data.train=F: …` with an option.
    """

    def __init__(
        self,
        message: str,
        *,
        option: str | None = None,
        file: str | Path | None = None,
        row: int | str | None = None,
        field: str | None = None,
    ) -> None:
        self.option, self.file, self.row, self.field = option, file, row, field
        location = "=".join(str(part) for part in (option, file) if part is not None)
        row = f"row {row}" if isinstance(row, int) else row
        parts = (location, row, field and f"field '{field}'")
        location_text = ", ".join(part for part in parts if part)
        super().__init__(f"{location_text}: {message}" if location_text else message)

    def _render_traceback_(self) -> list[str]:
        """The traceback in a notebook (IPython's hook): the message alone."""
        return [f"{type(self).__name__}: {self}"]


class ArgumentTypeError(UserError, TypeError):
    """An argument of the wrong type."""


class ArgumentValueError(UserError, ValueError):
    """An argument of the right type with an invalid value."""


class DataMissingError(UserError):
    """A dataset is nowhere and cannot be downloaded: a benchmark on it can be skipped, with a warning."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; a training has saved a checkpoint by then."""


class Pruned(Exception):  # noqa: N818  an outcome, no error
    """A search stopped the run after an evaluation, which is saved: other trials were better by then."""
