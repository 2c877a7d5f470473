"""The section `data`: where the data lies, and which of it there is."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

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

    @model_validator(mode="after")
    def _places_are_of_data_sets(self) -> Self:
        known = {dataset.setting.partition(".")[2] for dataset in dataset_types().values()}
        for name, value in (self.model_extra or {}).items():
            if name not in known:
                raise ValueError(f"there is no option data.{name}; data sets: {', '.join(sorted(known))}")
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise ValueError(f"data.{name}: must not be empty, but a folder or file, got {value!r}")
        return self

    @property
    def own(self) -> OwnData:
        """The user's own data, without the places of others."""
        return OwnData(**{name: getattr(self, name) for name in OwnData.model_fields})

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        for dataset in dataset_types().values():
            if self.sample and dataset.in_sample and self.place(dataset.name) is not None:
                raise ValueError(f"data=sample and {dataset.setting} exclude each other: give one of them")
        return self

    @model_validator(mode="after")
    def _extra_is_real(self) -> Self:
        if self.sample and self.extra is not None:
            raise ValueError(f"data=sample holds no {self.extra} data: leave data.extra={self.extra} out")
        return self

    def place(self, dataset: str) -> str | None:
        """The folder or file that the user named for a data set; None if there is none."""
        option = dataset_types()[dataset].setting.partition(".")[2]
        named: str | None = (self.model_extra or {}).get(option)
        return named
