"""A score says what it is: of which benchmark and what, whether more is better, where it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower", ""]
Role = Literal["headline", "compared", "detail", "constant"]


@dataclass(frozen=True)
class Metric:
    """A metric of a benchmark, and what its scores are.

    Attributes:
        name: in the scores' keys.
        better: "" for a fact, which is neither good nor bad: a change is shown and not judged.
        role: `headline` scores are in the model card, and models are compared by them, as by `compared` ones;
            `detail` is everything else, slices included; `constant` scores are the same whatever is trained.
        is_drawn: drawn over the steps of a run.
        title: in tables; by default the name.
        column: of the per-query records, with the value whose mean the score is; by default the name.
        statistic: if the score is not a mean: which statistic of the records' columns `predicted` and `gold`,
            by its name in :data:`idiomtune.statistics.STATISTICS`.
    """

    name: str
    better: Better = "higher"
    role: Role = "headline"
    is_drawn: bool = False
    title: str = ""
    column: str = ""
    statistic: str = ""


@dataclass(frozen=True)
class Score:
    """A number that a benchmark gives; `str(score)` is its key, `idiolink/val/span/ndcg@10/literal`.

    Attributes:
        benchmark: its name.
        split: of the data; "" if the benchmark has none.
        mode: how it was asked, such as a query mode; "" if there is only one.
        metric: what was measured.
        slice: of which part of the items; "" for all.
        dimension: how many leading dimensions of the embeddings were scored; None for all.
        better, role, is_drawn: as of its :class:`Metric`. They come from the benchmark's declaration
            (:func:`idiomtune.declarations.registry.score_of`), not from the benchmark when it scores.
    """

    benchmark: str
    split: str
    mode: str
    metric: str
    slice: str = ""
    value: float = math.nan
    dimension: int | None = None
    better: Better = "higher"
    role: Role = "headline"
    is_drawn: bool = True

    def __str__(self) -> str:
        size = "" if self.dimension is None else f"dim={self.dimension}"
        return "/".join(filter(None, (self.benchmark, self.split, self.mode, self.metric, self.slice, size)))

    @property
    def is_headline(self) -> bool:
        """Whether it is in the model card."""
        return self.role == "headline"

    @property
    def is_compared(self) -> bool:
        """Whether models are compared by it."""
        return self.role in ("headline", "compared") and self.better != ""

    @property
    def is_constant(self) -> bool:
        """Whether it is the same whatever is trained, such as that of another model."""
        return self.role == "constant"


def at_dimension(key: str, dimension: int) -> str:
    """The key of a score of this many leading dimensions: `<key>/dim=128`."""
    return f"{key}/dim={dimension}"


def full_key(key: str) -> str:
    """The key of the same score of the full embeddings."""
    return key.partition("/dim=")[0]
