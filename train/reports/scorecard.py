"""The rows of a scorecard, whoever shows them: terminal, page, Markdown, CSV or model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.declarations.registry import Verdict, judge

if TYPE_CHECKING:
    from train.reports.compare import Difference, Paired
    from train.reports.groups import Group

UNTRAINED = "untrained"


@dataclass(frozen=True)
class ScoreRow:
    """A score beside the untrained model's.

    Attributes:
        key: its name.
        value: of a run; of a group the mean over seeds.
        baseline: of the untrained model; None where it has none.
        std: over seeds; None for a run, or one seed.
        num_seeds: 1 for a run.
        paired: the comparison query by query with the untrained model, where there is one.
    """

    key: str
    value: float
    baseline: float | None = None
    std: float | None = None
    num_seeds: int = 1
    paired: Difference | None = None

    @property
    def difference(self) -> float | None:
        """To the untrained model."""
        return None if self.baseline is None else self.value - self.baseline

    @property
    def verdict(self) -> Verdict:
        """What the sign of the difference says."""
        return judge(self.key, self.difference or 0.0)

    @property
    def cells(self) -> tuple[str, str, str]:
        """Untrained, trained, difference."""
        return decimals(self.baseline), decimals(self.value), decimals(self.difference, "+")


def decimals(value: float | None, sign: str = "") -> str:
    """Four digits; nothing where there is no number."""
    return "" if value is None else f"{value:{sign}.4f}"


def score_rows(scores: Mapping[str, float], baseline: Mapping[str, float]) -> list[ScoreRow]:
    """A row for each score of a run."""
    return [ScoreRow(key, value, baseline.get(key)) for key, value in scores.items()]


def group_rows(group: Group, compared: Sequence[Paired] = ()) -> list[ScoreRow]:
    """A row for each score of a group.

    Args:
        compared: comparisons, among them the group's with its untrained model.
    """
    paired = {
        difference.key: difference
        for pair in compared
        if (pair.ours, pair.theirs) == (group.name, UNTRAINED)
        for difference in pair.differences
    }
    rows = []
    for key in group.keys:
        value, before = group.value(key), group.value(key, untrained=True)
        if value is not None:
            baseline = None if before is None else before.mean
            rows.append(ScoreRow(key, value.mean, baseline, value.std, value.num_seeds, paired.get(key)))
    return rows
