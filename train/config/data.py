"""The section `data`: where the data lies, and which of it there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from train.declarations.options import CountFromZero, Text
from train.declarations.own_data import OwnData
from train.declarations.registry import dataset_types


class DataSettings(OwnData):
    """Options that are not declared here name where a data set lies, see :meth:`place`."""

    model_config = ConfigDict(extra="allow")

    sample: bool
    glossary: Text
    extra: Literal["pie", "astitch"] | None
    fold: CountFromZero | None
    folds: Annotated[int, Field(ge=2, le=2**31 - 1)]

    def problems(self) -> Iterator[str]:
        known = {dataset.setting.partition(".")[2] for dataset in dataset_types().values()}
        for name, value in (self.model_extra or {}).items():
            if name not in known:
                yield f"there is no option data.{name}; data sets: {', '.join(sorted(known))}"
            if value is not None and not (isinstance(value, str) and value.strip()):
                yield f"data.{name}: must not be empty, but a folder or file, got {value!r}"
        for dataset in dataset_types().values():
            if self.sample and dataset.in_sample and self.place(dataset.name) is not None:
                yield f"data=sample and {dataset.setting} exclude each other: give one of them"
        if self.sample and self.extra is not None:
            yield f"data=sample holds no {self.extra} data: leave data.extra={self.extra} out"

    @property
    def own(self) -> OwnData:
        """The user's own data, without the places of others."""
        return OwnData(**{name: getattr(self, name) for name in OwnData.model_fields})

    def place(self, dataset: str) -> str | None:
        """The folder or file that the user named for a data set; None if there is none."""
        option = dataset_types()[dataset].setting.partition(".")[2]
        named: str | None = (self.model_extra or {}).get(option)
        return named
