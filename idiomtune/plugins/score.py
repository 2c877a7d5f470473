"""Scores with their parts: benchmark, split, mode, metric; direction and visibility.

Its key is for people: nothing reads a key to learn what its score is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Better = Literal["higher", "lower", ""]
Role = Literal["headline", "compared", "detail", "constant"]
Verdict = Literal["better", "worse", ""]


@dataclass(frozen=True)
class Metric:
    """A metric of a benchmark: name, direction and visibility of its scores.

    Attributes:
        name: in the scores' keys.
        better: "" for a fact, which is neither good nor bad: a change is shown and not judged.
        role: `headline` scores are in the model card, and models are compared by them, as by `compared` ones;
            `detail` is everything else, slices included; `constant` scores are the same whatever is trained.
        is_drawn: drawn over the steps of a run.
        title: in tables; by default the name.
        column: of the per-query records, with the value whose mean the score is; by default the name.
        statistic: if the score is not a mean: which statistic of the records' columns `predicted` and `gold`,
            by its name in :data:`idiomtune.reports.statistics.STATISTICS`.
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
        better, role, is_drawn: as of its :class:`Metric`, set by
            :func:`idiomtune.plugins.registry.score_declaration`, not by the benchmark.
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

    def verdict(self, change: float) -> Verdict:
        """Whether a change is for the better; "" for a fact, or if nothing changed."""
        if not change or not self.better:
            return ""
        return "better" if (change > 0) == (self.better == "higher") else "worse"

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


_PARTS = ("benchmark", "split", "mode", "metric", "slice", "dimension")


class ScoreTable(dict[str, float]):
    """Scores by their keys, and the parts of each.

    Attributes:
        parts: key → the score.
    """

    def __init__(self, scores: Iterable[Score] = ()) -> None:
        self.parts = {str(score): score for score in scores}
        super().__init__({key: score.value for key, score in self.parts.items()})

    def only(self, keys: Iterable[str]) -> ScoreTable:
        """The scores with these keys, if present."""
        return ScoreTable(self.parts[key] for key in keys if key in self)


def score_card(scores: ScoreTable, baseline: Mapping[str, float], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `scores.json`: scores by key, and a record of each score's parts for programs.

    Args:
        baseline: scores of the untrained model.
    """
    records = [
        {name: getattr(score, name) for name in _PARTS} | {"value": value, "untrained": baseline.get(key)}
        for key, value in scores.items()
        for score in [scores.parts[key]]
    ]
    return {"scores": dict(scores), "baseline": dict(baseline), "meta": meta, "records": records}


def read_scores(values: Mapping[str, float], records: Iterable[Mapping[str, Any]]) -> list[Score]:
    """The scores of `scores.json`. Without a record, a score has only its key."""
    parts = {str(score): score for score in (Score(**{n: r[n] for n in _PARTS}) for r in records)}
    scores = []
    for key, value in values.items():
        benchmark, _, metric = key.partition("/")
        unknown = Score(benchmark, "", "", metric) if benchmark and metric else Score("", "", "", key)
        scores.append(replace(parts.get(key, unknown), value=value))
    return scores
