"""A data set for expressions of your own, written by language models: `idiomtune write <expressions> …`."""

from __future__ import annotations

import sys

from idiomtune.config.settings import ReviewSettings, SelectSettings, WriteSettings
from idiomtune.io.files import printable


def write(settings: WriteSettings) -> str:
    """Write the data set, or sentences to learn from; returns the last line that is printed.

    Raises:
        UserError: for everything that the user can fix.
    """
    from idiomtune.writing.run import write as write_data  # heavy: after the settings are known to be right

    about = f"writing about the expressions of {settings.expressions}"
    print(printable(about), file=sys.stderr, flush=True)
    return write_data(settings)


def select(settings: SelectSettings) -> str:
    """Write a table of expressions that are used literally and idiomatically; returns what to do next."""
    from idiomtune.writing.expressions import select_expressions

    select_expressions(settings)
    return f"{settings.output}: strike out rows (column keep), add meanings; then idiomtune write"


def review(settings: ReviewSettings) -> str:
    """Write the spreadsheet of a data set, or read its marks; returns what to do next."""
    from idiomtune.writing.run import review as review_texts

    return review_texts(settings.folder)
