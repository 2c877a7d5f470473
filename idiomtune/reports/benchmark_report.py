"""What a report shows of a benchmark besides its scores: queries with the models' answers, a table, figures.

A benchmark declares a module (`report=`) with a function `report`: :class:`RecordsOfRun` →
:class:`BenchmarkReport`, or None if there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from idiomtune.plugins.registry import benchmark_type
from idiomtune.reports.runs import RunResults, read_records
from idiomtune.reports.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = TypeVar("Record", bound=BaseModel)


class RecordsOfRun:
    """A run's results of each query of a benchmark.

    Attributes:
        run: the run.
        notes: on records that cannot be shown.
    """

    def __init__(self, run: RunResults, benchmark: str) -> None:
        self.run = run
        self.notes: list[str] = []
        self._benchmark = benchmark

    def __bool__(self) -> bool:
        sides = (False, True)
        return any(self.run.per_query_file(self._benchmark, untrained=side).exists() for side in sides)

    def read(self, kind: type[Record], *, untrained: bool = False) -> list[Record]:
        """The records of the benchmark's per-query file that are of this kind; others are counted.

        Args:
            untrained: those of the model before training.
        """
        path = self.run.per_query_file(self._benchmark, untrained=untrained)
        lines, damaged = read_records(path, self._benchmark)
        records = []
        for line in lines:
            try:
                records.append(kind.model_validate(line))
            except ValidationError:
                damaged += 1
        if damaged:
            self.notes.append(f"{path.parent.name}/{path.name}: {damaged} lines are damaged")
        return records


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
class BenchmarkReport:
    """What a report shows of a benchmark.

    Attributes:
        title, subtitle: what the examples are, and of which split and mode.
        examples: heading → queries.
        notes: what is missing, a sentence each.
        table: above the examples.
        as_pictures: answers are images with captions, side by side.
        greatest_gain: the query with most right answers gained among the first three; None if none gained.
        figures: name of a file in `plots/` → what draws it; None where there is nothing to draw.
    """

    title: str = ""
    subtitle: str = ""
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    table: Table | None = None
    as_pictures: bool = False
    greatest_gain: Example | None = None
    figures: Mapping[str, Callable[[], Figure | None]] = field(default_factory=dict)


def benchmark_report(run: RunResults, benchmark: str) -> tuple[BenchmarkReport | None, list[str]]:
    """The report of a benchmark, and notes on damaged records.

    Without a report are benchmarks that declare none, or of which the run has no results of each query.
    """
    module, records = benchmark_type(benchmark).report, RecordsOfRun(run, benchmark)
    report = import_module(module).report(records) if module and records else None
    return report, records.notes


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
