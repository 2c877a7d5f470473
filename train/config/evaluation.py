"""All settings of an evaluation, and what must fit together in them."""

from __future__ import annotations

from collections.abc import Iterator

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

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        self.check_named("benchmarks", self.benchmarks)
        named = self.model.idiom_tokens
        if isinstance(named, str) and named.partition("/")[0] == "train":
            yield (f"model.idiom_tokens={named}: there is no training data here; list the expressions")
        if self.data.extra is not None:
            yield f"data.extra={self.data.extra} is training data: leave it out"
