"""Contents of a report besides scores: single queries with the model's answers, and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

Record = TypeVar("Record", bound=BaseModel)


class QueryRecords(Protocol):
    """The per-query records of a benchmark in a run folder.

    Attributes:
        monitor: the scores that picked the best checkpoint.
        files: path → SHA-256 of the data that the run read.
    """

    monitor: Sequence[str]
    files: Mapping[str, str]

    def read(self, kind: type[Record], *, untrained: bool = False, part: str = "") -> list[Record]:
        """The records of the benchmark's per-query file that are of this kind; the page counts the others.

        Args:
            untrained: those of the model before training.
            part: `map` for the records of where texts lie, which are in a file of their own.
        """
        ...


@dataclass(frozen=True)
class Answer:
    """A document, image or anything else that the model gave for a query, at its place in the model's order.

    Attributes:
        mark: whether it is right, in words.
        kind: its label; `idiomatic`, `literal`, … have colours.
        label: the kind as it is shown.
        image: a file that is shown, too.
    """

    text: str
    mark: str
    is_right: bool
    kind: str = ""
    label: str = ""
    image: Path | None = None


@dataclass(frozen=True)
class Example:
    """A query with the first answers.

    Attributes:
        kind: its label, if it has one.
        topic: such as "idiom “break the ice”".
        answers: the page shows the first five.
        untrained_answers: those of the model before training.
        metric, score: the judgement; `remark` follows them.
    """

    text: str
    kind: str
    topic: str
    metric: str
    score: str
    remark: str
    answers: Sequence[Answer]
    untrained_answers: Sequence[Answer] = ()


@dataclass(frozen=True)
class Shares:
    """Shares of kinds among the answers, for groups of queries: group → a fraction for each kind."""

    title: str
    kinds: Sequence[str]
    rows: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Examples:
    """Examples of a benchmark.

    Attributes:
        title, subtitle: what they are, and of which split and mode.
        lists: heading → examples.
        notes: what is missing, a sentence each.
        as_pictures: answers are images with captions, side by side.
        greatest_gain: the query with most right answers gained among the first three; None if none gained.
    """

    title: str
    subtitle: str
    lists: Mapping[str, Sequence[Example]]
    notes: Sequence[str] = ()
    shares: Shares | None = None
    as_pictures: bool = False
    greatest_gain: Example | None = None


GAINED_MOST = "Gained most by training"
NUM_FIRST = 3  # answers that a run's last screen shows


def worst_and_best(
    pairs: Sequence[tuple[Record, Record | None]],
    score: Callable[[Record], float],
    example: Callable[[Record, Record | None], Example],
) -> dict[str, list[Example]]:
    """Lists of examples: the worst and best queries, and those that training changed most.

    Args:
        pairs: each query's record, and that of the model before training, if there is one.
        score: of a record; the greater, the better.
        example: shows such a pair.
    """
    ordered = sorted(pairs, key=lambda pair: score(pair[0]))
    number = min(4, len(ordered) // 2) or 1  # in a list
    changed = [(score(pair[0]) - score(pair[1]), pair) for pair in ordered if pair[1] is not None]
    changed.sort(key=lambda change: change[0])
    lists = {
        "Worst": ordered[:number],
        "Best": ordered[::-1][:number],
        "Lost most by training": [pair for change, pair in changed[:number] if change < 0],
        GAINED_MOST: [pair for change, pair in changed[::-1][:number] if change > 0],
    }
    return {heading: [example(*pair) for pair in chosen] for heading, chosen in lists.items() if chosen}


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
class Distributions:
    """Values side by side, for a plot: groups, and in each the same series.

    Attributes:
        caption: how to read it.
    """

    title: str
    y_label: str
    groups: Mapping[str, Mapping[str, Sequence[float]]]
    caption: str = ""


@dataclass(frozen=True)
class Figures:
    """The figures of a benchmark; None for one that cannot be drawn."""

    gains: Gains | None = None
    maps: Maps | None = None
