"""What a benchmark has drawn at the end of a run: its queries' gains, and where texts lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """A score of the same queries before and after training: (Q,) values each, in one order."""

    name: str
    before: Sequence[float]
    after: Sequence[float]


@dataclass(frozen=True)
class Gains:
    """Means before and after training, side by side.

    Attributes:
        label: the score.
        groups: heading → what stands under it.
    """

    title: str
    label: str
    groups: Mapping[str, Sequence[Gain]]


@dataclass(frozen=True)
class Panel:
    """Texts in two dimensions.

    Attributes:
        points: kind of text → (x, y) of each.
        axes: labels of x and y.
    """

    heading: str
    points: Mapping[str, Sequence[tuple[float, float]]]
    axes: tuple[str, str]


@dataclass(frozen=True)
class Maps:
    """The same texts by the untrained and the trained model, a row for each group of them.

    Attributes:
        kinds: of the texts, in the legend's order.
        caption: how to read it.
    """

    title: str
    kinds: Sequence[str]
    rows: Sequence[tuple[Panel, Panel]]
    caption: str = ""


@dataclass(frozen=True)
class Figures:
    """The figures of a benchmark; None for one that cannot be drawn."""

    gains: Gains | None = None
    maps: Maps | None = None
