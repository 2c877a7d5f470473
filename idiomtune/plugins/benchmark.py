"""The declaration of a benchmark."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import ConfigSection, Names
from idiomtune.plugins.score import Metric, Role, Score


class BenchmarkOptions(ConfigSection, ABC):
    """The options of a benchmark, in `conf/benchmark/<name>.yaml`; `name` is among them.

    Attributes:
        known_splits: those that it has; none where it has no splits at all.
        fold_split: the one that is a fold of cross-validation, if it has such.
        has_others: it may also have splits that no other benchmark knows (in a user's own data).
        data_options: options that say where its data lies.
        facts: what every benchmark of this kind declares, as of :class:`BenchmarkType`.
    """

    known_splits: ClassVar[tuple[str, ...]] = ()
    fold_split: ClassVar[str] = ""
    has_others: ClassVar[bool] = False
    data_options: ClassVar[tuple[str, ...]] = ()
    facts: ClassVar[dict[str, Any]] = {}

    declared: ClassVar[BenchmarkType]  # by the decorator `benchmark`

    name: str

    @property
    def default_splits(self) -> list[str]:
        """Scored unless `split=` names another one that it has."""
        return list(dict.fromkeys(getattr(self, "split", ())))

    @property
    def score_modes(self) -> list[str]:
        """The modes in which it is scored, as in its keys."""
        return [""]

    def possible_scores(self, splits: Sequence[str]) -> list[Score]:
        """Every score of these splits that can be monitored; facts cannot."""
        declared = getattr(self, "declared", None)
        names = [metric.name for metric in declared.metrics if metric.better] if declared else []
        parts = product(splits or [""], self.score_modes, names)
        return [Score(self.name, *of_score) for of_score in parts]

    def build(self, inputs: RunInputs) -> Any:
        """The :class:`idiomtune.benchmarks.Benchmark`, its data read and checked.

        Raises:
            DataMissingError: if the data is missing: the benchmark is left out, unless the user named it.
            UserError: if the data is wrong, or does not fit the options.
        """
        raise NotImplementedError


class OptionsWithSplit(BenchmarkOptions):
    """Options of a benchmark that needs no more than its splits."""

    has_others: ClassVar[bool] = True

    split: Names


@dataclass(frozen=True)
class QueryResult:
    """The value of one score in a record of a per-query file.

    Attributes:
        score: without its value.
        query: which query, pair or item it is of, unique in the score.
        cluster: what belongs together in a resample: its idiom, compound or expression; None if it is alone.
        value: the score is the mean of these, …
        pair: … or a statistic of these (predicted, gold), …
        statistic: … by its name in :data:`idiomtune.reports.statistics.STATISTICS`.
        text: of the query, for people.
    """

    score: Score
    query: str
    cluster: str | None
    value: float | None = None
    pair: tuple[float, float] | None = None
    statistic: str = "spearman"
    text: str = ""

    @property
    def key(self) -> str:
        """Of the score."""
        return str(self.score)


TableCell = tuple[str, str, str]  # in a table: the row, the heading above the column, the column


@dataclass(frozen=True, eq=False)
class BenchmarkType:
    """A benchmark: its options, its metrics, and how its scores and records are read.

    What a score is follows from its metric; `refine` has the exceptions. Its key is the same for all
    benchmarks: `<benchmark>/<split>/<mode>/<metric>/<slice>`, without empty parts.

    Attributes:
        name: first part of its score keys, and its name in `benchmark=[...]`.
        options: the class of its section.
        title: for people.
        metrics: in the order of its table. Scores of other metrics are details; if none is listed, every
            score is a headline.
        refine: a score as its metric has it → as it is.
        percent: tables show 100 times the score.
        rows: what a row of its table is.
        cell: a score → its cell in the table of its split, None for no cell; by default a row a mode.
        cluster: column of the per-query records: which queries belong together in a resample (an idiom,
            compound or expression).
        slices: column of the per-query records with the slice that a query is in.
        read_record: a record of its per-query file → what comparisons need, if this is more than
            :func:`results_of` finds. KeyError, TypeError or ValueError for a damaged one.
        report: a module whose function `report` gives what reports show besides scores
            (:mod:`idiomtune.reports.benchmark_report`).
        hub_dataset, hub_task: its data set and kind of task in the Hub's lists.
    """

    name: str
    options: type[BenchmarkOptions]
    title: str = ""
    metrics: Sequence[Metric] = ()
    refine: Callable[[Score], Score] = lambda score: score
    percent: bool = False
    rows: str = "mode"
    cell: Callable[[Score], TableCell | None] | None = None
    cluster: str = "cluster"
    slices: str = ""
    read_record: Callable[[Mapping[str, Any]], Iterable[QueryResult]] | None = None
    report: str = ""
    hub_dataset: str = ""
    hub_task: str = "feature-extraction"

    def complete(self, score: Score) -> Score:
        """The score with its metric's facts: whether more is better, where it is shown."""
        metrics = {metric.name: metric for metric in self.metrics}
        unlisted = Metric(score.metric, role="detail" if metrics else "headline", is_drawn=not metrics)
        metric = metrics.get(score.metric, unlisted)
        is_detail = bool(score.slice and metrics)
        role: Role = "detail" if is_detail else metric.role
        is_drawn = metric.is_drawn and not is_detail
        score = self.refine(replace(score, better=metric.better, role=role, is_drawn=is_drawn))
        if score.dimension is not None:
            return replace(score, role="detail", is_drawn=False)
        return replace(score, is_drawn=False) if score.is_constant else score

    def results(self, record: Mapping[str, Any]) -> Iterable[QueryResult]:
        """The values of all scores in a record of the per-query file."""
        if self.read_record is not None:
            return self.read_record(record)
        return results_of(record, self.name, self.metrics, cluster=self.cluster, slices=self.slices)

    def cell_of(self, score: Score) -> TableCell | None:
        """The score's cell in the table of its split, under the metric's title; ↓: smaller is better."""
        metric = next((metric for metric in self.metrics if metric.name == score.metric), None)
        if self.cell is not None:
            cell = self.cell(score)
        else:
            cell = (score.mode, score.slice, score.metric) if metric or not self.metrics else None
        if cell is None or cell[2] != score.metric:
            return cell
        title = (metric and metric.title) or score.metric
        return *cell[:2], f"{title} ↓" if score.better == "lower" else title


def results_of(
    record: Mapping[str, Any],
    benchmark: str,
    metrics: Sequence[Metric],
    *,
    cluster: str = "cluster",
    slices: str = "",
) -> Iterator[QueryResult]:
    """The scores in a record: a value for each of its metrics, or a pair for a statistic.

    Args:
        record: with `id`, as far as there are any `split` and `mode`, and the metrics' columns.
        cluster, slices: names of columns, as of :class:`BenchmarkType`.
    """
    parts = benchmark, record.get("split", ""), record.get("mode", "")
    texts = (record.get(name) for name in ("query", "sentence", "sentence1", "sentence2"))
    about: dict[str, Any] = {"cluster": record.get(cluster)}
    about["text"] = " | ".join(str(text) for text in texts if text)
    for metric in metrics:
        if metric.statistic and "gold" in record:
            pair = float(record["predicted"]), float(record["gold"])
            score = Score(*parts, metric.name)
            yield QueryResult(score, record["id"], pair=pair, statistic=metric.statistic, **about)
        elif not metric.statistic and (value := record.get(metric.column or metric.name)) is not None:
            for slice_ in dict.fromkeys(("", record.get(slices) or "")):
                score = Score(*parts, metric.name, slice_)
                yield QueryResult(score, record["id"], value=float(value), **about)
