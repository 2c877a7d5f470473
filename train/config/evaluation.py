"""All settings of an evaluation, and what must fit together in them."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from train.config.benchmarks import BenchmarkNames
from train.config.common import Common
from train.declarations.options import Dimensions, Text


class EvaluateSettings(Common):
    benchmarks: BenchmarkNames | None
    dimensions: Dimensions | None
    per_query: Text | None
    predictions: Text | None
    plots: Text | None
    output: Text | None
    overwrite: bool

    @property
    def cut_dimensions(self) -> list[int]:
        return self.dimensions or []

    @model_validator(mode="after")
    def _named_are_there(self) -> Self:
        self.check_named("benchmarks", self.benchmarks)
        return self

    @model_validator(mode="after")
    def _nothing_is_trained(self) -> Self:
        named = self.model.idiom_tokens
        if isinstance(named, str) and named.partition("/")[0] == "train":
            raise ValueError(
                f"model.idiom_tokens={named}: there is no training data here; list the expressions"
            )
        if self.data.extra is not None:
            raise ValueError(f"data.extra={self.data.extra} is training data: leave it out")
        return self
