"""Types of cells and fields that several data sets have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


def _check_filled(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


def _check_worded(value: str) -> str:
    if not any(c.isalnum() for c in value):
        raise ValueError("is empty")
    return value


NOT_BLANK = AfterValidator(_check_filled)
WORDED = AfterValidator(_check_worded)  # contains a letter or digit

Cell = Annotated[str, StringConstraints(strip_whitespace=True)]
FilledCell = Annotated[Cell, NOT_BLANK]
WordedCell = Annotated[Cell, WORDED]
Filled = Annotated[str, NOT_BLANK]  # unchanged, including blanks around it
Worded = Annotated[str, WORDED]


class TableRow(BaseModel):
    """A row of a table; its other columns are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
