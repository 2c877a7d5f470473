"""A score: what it is of, and its value."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A number that a benchmark gives; `str(score)` is its key, `idiolink/val/span/ndcg@10/literal`.

    Whether more of it is better, and where it is shown, is declared once for the benchmark
    (:class:`train.declarations.benchmark.BenchmarkType`).

    Attributes:
        benchmark: its name.
        split: of the data; "" where the benchmark has none.
        mode: how it was asked, such as a query mode; "" where there is only one.
        metric: what was measured.
        slice: of which part of the items; "" for all.
    """

    benchmark: str
    split: str
    mode: str
    metric: str
    slice: str = ""
    value: float = math.nan

    def __str__(self) -> str:
        return "/".join(filter(None, (self.benchmark, self.split, self.mode, self.metric, self.slice)))
