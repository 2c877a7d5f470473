"""Where a user's own training data lies and how it is read: options of `data` and of a mixture's parts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from train.declarations.options import Section, Text, as_list

Form = Literal["pairs", "scored", "sentences"]


def _files(value: Any) -> Any:
    return value if value is None else as_list(value)


Files = Annotated[Annotated[list[Text], Field(min_length=1)] | None, BeforeValidator(_files)]


class OwnData(Section):
    """One's own data.

    Attributes:
        train: files (CSV, TSV, JSONL, Parquet), folders of them, or data sets of the Hub as
            `hf:owner/name:split@revision`.
        val: the same, held out. None: a share of `train`'s groups.
        val_share: that share.
        form: what a row is; None = by its columns.
        columns: what → the column that has it, where names do not tell.
    """

    train: Files
    val: Files
    val_share: Annotated[float, Field(gt=0, lt=1)]
    form: Form | None
    columns: dict[Text, Text]
