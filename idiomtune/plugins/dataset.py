"""The declaration of a data set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr

from idiomtune.plugins.options import ConfigSection, Count, CountFromZero, Ratio, Text, as_list, or_empty

OWN_VAL = "own_val"  # the benchmark on what is held out of the user's own training data
OWN = "own"  # the name of the user's own data among the data sets that an objective trains on
# Where one's own data lies, which makes no other run.
FOLDER = re.compile(r"(objective\.parts\.[\w-]+\.)?data\.(train|val)")
Form = Literal["pairs", "scored", "sentences"]
MISSING_TRAIN_MESSAGE = (
    "data.train names your training data: a file (CSV, TSV, JSONL, Parquet, XLSX), a folder of them, or "
    "hf:<owner>/<name>:<split>"
)


Files = Annotated[Annotated[list[Text], Field(min_length=1)] | None, BeforeValidator(as_list)]


class Negatives(ConfigSection):
    """Hard negatives that are mined for pairs.

    Attributes:
        number: for each anchor, at most; None = none are mined.
        model: that mines; None = the one that is trained, as it is before.
        corpus: tables with a column `text`, as `train` names tables; None = the positives of other anchors.
        range_min, range_max: which of an anchor's nearest texts are taken; None = as many as are needed.
        margin: by how much a negative is less similar to the anchor than its positives, at least.
        file: what was mined, once it has been; no option.
    """

    number: Count | None
    model: Text | None
    corpus: Files
    range_min: CountFromZero
    range_max: Count | None
    margin: Ratio | None
    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        return self._file

    def with_file(self, file: Path | None) -> Self:
        """The same options with the file of mined negatives."""
        copy = self.model_copy()
        copy._file = file
        return copy

    def problems(self) -> Iterator[str]:
        if self.number is None and (self.corpus or self.model):
            yield "corpus and model need number=<how many negatives each anchor gets at most>"
        if self.range_max is not None and self.range_max - self.range_min < (self.number or 0):
            sizes = f"range_min={self.range_min} and range_max={self.range_max}"
            yield f"{sizes} leave fewer than number={self.number}"


class UserData(ConfigSection):
    """The options of a user's own data.

    Attributes:
        train: files (CSV, TSV, JSONL, Parquet, XLSX), folders of them, or data sets of the Hub as
            `hf:owner/name:split@revision`.
        val: the same, held out. None: a share of `train`'s groups.
        val_share: that share.
        form: what a row is; None = by its columns.
        negatives: mined for pairs.
        columns: what → the column (or columns) that have it, where names do not tell; `ignore` → columns that
            are left out; `keep` and `positive_if` → a condition such as `label=1`.
    """

    train: Files
    val: Files
    val_share: Annotated[float, Field(gt=0, lt=1)]
    form: Form | None
    columns: Annotated[dict[Text, Text | list[Text] | None], BeforeValidator(or_empty)]
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


class DataSettings(UserData):
    """The section `data`; options that are not declared say where data sets are."""

    model_config = ConfigDict(extra="allow")

    sample: bool
    also: Annotated[list[Text], BeforeValidator(as_list)]
    glossary: Annotated[list[Text], BeforeValidator(as_list)]
    fold: CountFromZero | None
    folds: Annotated[int, Field(ge=2, le=2**31 - 1)]

    @property
    def user_data(self) -> UserData:
        """The user's data, without the folders of data sets."""
        return UserData(**{name: getattr(self, name) for name in UserData.model_fields})

    def data_path(self, dataset: DatasetType) -> str | None:
        """The folder or file that the user gave for a data set, or None."""
        path: str | None = (self.model_extra or {}).get(dataset.setting.partition(".")[2])
        return path
