"""What a data set declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from idiomtune.declarations.options import Count, CountFromZero, Ratio, Section, Text, as_list, or_empty

HELD_OUT = "own_val"  # the benchmark on what is held out of the user's own training data
OWN = "own"  # the name of the user's own data among the data sets that an objective trains on
# Where one's own data lies, which makes no other run.
PLACE = re.compile(r"(objective\.parts\.[\w-]+\.)?data\.(train|val)")
Form = Literal["pairs", "scored", "sentences"]
NO_DATA = (
    "data.train names your training data: a file (CSV, TSV, JSONL, Parquet, XLSX), a folder of them, or "
    "hf:<owner>/<name>:<split>"
)


def _files(value: Any) -> Any:
    return value if value is None else as_list(value)


Files = Annotated[Annotated[list[Text], Field(min_length=1)] | None, BeforeValidator(_files)]


class Negatives(Section):
    """Hard negatives that are mined for pairs.

    Attributes:
        corpus: tables with a column `text`, as `train` names tables; None = none are mined.
        num: for each anchor, at most.
        range_min, range_max: which of an anchor's nearest texts are taken; None = as many as are needed.
        margin: by how much a negative is less similar to the anchor than its positives, at least.
        max_score: how similar it is to the anchor, at most.
        mined: the corpus's files and the file with what was mined from it, once it has been; no option.
    """

    corpus: Files
    num: Count
    range_min: CountFromZero
    range_max: Count | None
    margin: Ratio | None
    max_score: Ratio | None
    _mined: tuple[Path, ...] = PrivateAttr(())

    @property
    def mined(self) -> tuple[Path, ...]:
        return self._mined

    def with_mined(self, files: Sequence[Path]) -> Self:
        """The same, mined."""
        copy = self.model_copy()
        copy._mined = tuple(files)
        return copy

    def problems(self) -> Iterator[str]:
        if self.range_max is not None and self.range_max - self.range_min < self.num:
            yield (
                f"range_min={self.range_min} and range_max={self.range_max} leave fewer than num={self.num}"
            )


class OwnData(Section):
    """One's own data.

    Attributes:
        train: files (CSV, TSV, JSONL, Parquet, XLSX), folders of them, or data sets of the Hub as
            `hf:owner/name:split@revision`.
        val: the same, held out. None: a share of `train`'s groups.
        val_share: that share.
        form: what a row is; None = by its columns.
        negatives: mined for pairs.
        columns: what → the column that has it, where names do not tell; a column → None leaves it out;
            `keep` and `positive_if` → a condition such as `label=1`.
    """

    train: Files
    val: Files
    val_share: Annotated[float, Field(gt=0, lt=1)]
    form: Form | None
    columns: Annotated[dict[Text, Text | None], BeforeValidator(or_empty)]
    negatives: Negatives


@dataclass(frozen=True)
class DatasetType:
    """A data set: its names, and its licence.

    Attributes:
        name: of its folder in the layout of `IDIOM_DATA`, and in the cache.
        option: `data.<option>` names its folder or file; "" if `data.<name>` does.
        title: for people.
        licence: an identifier of the Hub's list (SPDX in lower case); None if unknown.
        hub: its name on the Hugging Face Hub, if it has one.
        allows_custom: its option may name anybody's data in this form, of which no licence is known.
        in_sample: `data=sample` has a small one of it.
    """

    name: str
    option: str = ""
    title: str = ""
    licence: str | None = None
    hub: str | None = None
    allows_custom: bool = False
    in_sample: bool = False

    @property
    def setting(self) -> str:
        """The option that names its folder or file."""
        return f"data.{self.option or self.name}"
