"""What a benchmark says of itself."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from train.declarations.examples import Examples, QueryRecords
from train.declarations.figures import Figures
from train.declarations.options import Names, Section


class BenchmarkOptions(Section, ABC):
    """The options of a benchmark, in `conf/benchmark/<name>.yaml`; `name` is among them.

    Attributes:
        known_splits: those that it has; none where it has no splits at all.
        fold_split: the one that is a fold of cross-validation, if it has such.
        has_others: it may also have splits that no other benchmark knows (in a user's own data).
        places: options that say where its data lies.
    """

    known_splits: ClassVar[tuple[str, ...]] = ()
    fold_split: ClassVar[str] = ""
    has_others: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]] = ()

    name: str

    @property
    def default_splits(self) -> list[str]:
        """Scored unless `split=` names another one that it has."""
        return list(dict.fromkeys(getattr(self, "split", ())))

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        """Every score that it can give on these splits.

        A benchmark that leaves this out is scored all the same, but none of its scores can be monitored.
        """
        del splits
        return []


class OptionsWithSplit(BenchmarkOptions):
    """Options of a benchmark that needs no more than its splits."""

    has_others: ClassVar[bool] = True

    split: Names


@dataclass(frozen=True)
class QueryResult:
    """What a record of a per-query file says of one score.

    Attributes:
        key: of the score.
        query: which query, pair or item it is of, unique in the score.
        cluster: what belongs together in a resample: its idiom, compound or expression; None if it is alone.
        value: the score is the mean of these, …
        pair: … or a statistic of these (predicted, gold), …
        statistic: … by its name in :data:`train.reports.statistics.STATISTICS`.
    """

    key: str
    query: str
    cluster: str | None
    value: float | None = None
    pair: tuple[float, float] | None = None
    statistic: str = "spearman"


@dataclass(frozen=True)
class Layout:
    """A table of a benchmark's scores: which score stands where.

    Attributes:
        name: short, for LaTeX labels.
        title: what it shows, and in which unit.
        columns: (above, name) of each column; equal names above are one heading.
        rows: of each model: further labels, and the key of each column.
        labels: names of the further labels.
        constant: rows that are the same whatever was trained: their label, and the key of each column.
        factor, digits: how scores are shown: times `factor`, with so many digits.
    """

    name: str
    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[Sequence[str], Sequence[str]]]
    labels: Sequence[str] = ()
    constant: Sequence[tuple[str, Sequence[str]]] = ()
    factor: float = 1.0
    digits: int = 3


def plain_layout(name: str, split: str, keys: Sequence[str]) -> Layout:
    """A column for each score of a split ("": of all), for a benchmark that has no layout of its own."""
    place = [name, split] if split else [name]
    there = [key for key in keys if key.split("/")[: len(place)] == place]
    columns = [("", "/".join(key.split("/")[len(place) :])) for key in there]
    return Layout("-".join(place), ", ".join(place), columns, [((), there)])


@dataclass(frozen=True)
class PublishedRow:
    """A model's figures in a paper, and what gives ours.

    Attributes:
        name: the model as the paper has it, with what tells its rows apart.
        overrides: of `python -m train.evaluate`.
        checkpoints: names of the model; a folder with the last part of one counts as well.
        options: dotted option → the values that it may have where a scorecard is compared with this row.
        scores: key → figure.
    """

    name: str
    overrides: Sequence[str]
    checkpoints: Sequence[str]
    options: Mapping[str, Sequence[Any]]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Published:
    """A paper's table of models.

    Attributes:
        source: where it is printed.
        layouts: the tables, each with one row of keys.
        rows: a model each.
        kind: scores → what the paper calls such a model; "" where the scores do not tell.
    """

    source: str
    layouts: Sequence[Layout]
    rows: Sequence[PublishedRow]
    kind: Callable[[Mapping[str, float]], str]


@dataclass(frozen=True)
class BenchmarkType:
    """A benchmark: its options, how it is built, and how its scores are read.

    Attributes:
        name: first part of its score keys, and its name in `benchmark=[...]`.
        options: the class of its section.
        build: (settings, options) → the benchmark, its data read and checked; a function, or
            "module:function" where the module is heavy.
        title: for people.
        has_splits: whether the second part of its keys is a split.
        smaller_is_better: parts of keys that count errors or ranks; of all other scores more is better.
        is_fact: whether a score is neither good nor bad: a change is shown and not judged.
        is_headline: whether a score (by its key) stands in the model card.
        is_compared: whether models are compared by it: no slice or fact, nothing that training cannot change.
        is_curve: whether it is drawn over the steps of a run.
        is_constant: whether it is the same whatever is trained, as that of another model beside it.
        layout: (split, all keys there are) → its table; None for one column a score.
        read_record: a record of its per-query file → what comparisons need; None where there is nothing to
            compare query by query. KeyError, TypeError or ValueError for one that is damaged.
        examples: what a run left of it → single queries for the page; a function, or "module:function".
        figures: likewise → what training changed, drawn at a run's end (`train/declarations/figures.py`).
        published: "module:name" of a :class:`Published`, if a paper prints a table of models.
        hub_dataset, hub_task: its data set and kind of task in the Hub's lists.
    """

    name: str
    options: type[BenchmarkOptions]
    build: Callable[[Any, Any], Any] | str
    title: str = ""
    has_splits: bool = True
    smaller_is_better: frozenset[str] = field(default_factory=frozenset)
    is_fact: Callable[[str], bool] = lambda _: False
    is_headline: Callable[[str], bool] = lambda _: True
    is_compared: Callable[[str], bool] = lambda _: True
    is_curve: Callable[[str], bool] = lambda _: True
    is_constant: Callable[[str], bool] = lambda _: False
    layout: Callable[[str, Sequence[str]], Layout] | None = None
    read_record: Callable[[Mapping[str, Any]], Iterable[QueryResult]] | None = None
    examples: Callable[[QueryRecords], Examples | None] | str | None = None
    figures: Callable[[QueryRecords], Figures] | str | None = None
    published: str = ""
    hub_dataset: str = ""
    hub_task: str = "feature-extraction"

    def table(self, split: str, keys: Sequence[str]) -> Layout:
        """The layout of its scores on a split ("" where it has none)."""
        return self.layout(split, keys) if self.layout else plain_layout(self.name, split, keys)
