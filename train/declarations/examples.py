"""Single queries of a benchmark, for a report's page: what the model answered, and whether it was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

Record = TypeVar("Record", bound=BaseModel)


class QueryRecords(Protocol):
    """What a run left of a benchmark.

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
        kind: as what it is labelled: `idiomatic`, `literal`, … have colours of their own.
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
        topic: what it is about, as "idiom “break the ice”".
        metric, score: what it is judged by; `remark` stands behind them.
    """

    text: str
    kind: str
    topic: str
    metric: str
    score: str
    remark: str
    answers: Sequence[Answer]


@dataclass(frozen=True)
class Shares:
    """Of groups of queries, which share of the answers is of which kind: group → a fraction for each kind."""

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
    """

    title: str
    subtitle: str
    lists: Mapping[str, Sequence[Example]]
    notes: Sequence[str] = ()
    shares: Shares | None = None
    as_pictures: bool = False
