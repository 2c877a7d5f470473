"""The section `data`: where the data lies, and which of it there is."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from train.config.base import CountFromZero, Section, Text


class DataSettings(Section):
    sample: bool
    root: Text | None
    semeval2022: Text | None
    admire: Text | None
    astitch: Text | None
    ncimp: Text | None
    extra: Literal["pie"] | None
    pie: Text | None
    fold: CountFromZero | None
    folds: Annotated[int, Field(ge=2, le=2**31 - 1)]

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        for name in ("root", "semeval2022", "ncimp", "admire", "astitch"):
            if self.sample and getattr(self, name) is not None:
                raise ValueError(f"data=sample and data.{name} exclude each other: give one of them")
        return self

    @model_validator(mode="after")
    def _extra_is_real(self) -> Self:
        if self.sample and self.extra is not None:
            raise ValueError(f"data=sample holds no {self.extra} data: leave data.extra={self.extra} out")
        return self
