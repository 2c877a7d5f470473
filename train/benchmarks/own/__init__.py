"""Benchmarks on users' own files: retrieval, scored pairs, labelled pairs, rankings.

Declared here; files are read in `pair_files`, `ranking_files` and `collections`, and scored in a
module each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from train.data.own import forms
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import Count, Text
from train.declarations.score import Score
from train.io.paths import expanded

_Reader = Callable[[Mapping[str, Any]], Iterator[QueryResult]]

HELD_OUT = "own_val"  # the benchmark on what is held out of the user's own training data

Mode = Literal["sentence", "span"]
MODES: tuple[Mode, ...] = ("sentence", "span")
Index = Literal["exact", "hnsw"]

NDCG_CUTOFFS = (1, 5, 10, 100)
RECALL_CUTOFFS = (1, 5, 10, 100)
RETRIEVAL_METRICS = (
    *(f"ndcg@{k}" for k in NDCG_CUTOFFS),
    "map@100",
    *(f"recall@{k}" for k in RECALL_CUTOFFS),
    "precision@1",
    "mrr@10",
)
STS_METRICS = ("spearman", "pearson")
PAIR_METRICS = ("average_precision", "roc_auc", "f1", "accuracy")
PAIR_THRESHOLDS = ("f1_threshold", "accuracy_threshold")
RANKING_METRICS = ("ndcg@1", "ndcg@5", "ndcg@10", "mrr", "map", "r_precision", "spearman")


def own_score(benchmark: str, name: str, mode: Mode, metric: str, value: float = 0.0) -> Score:
    """`<benchmark>/<name of the data, if any>/<metric>`; of spans `<benchmark>/<name>/span/<metric>`."""
    return Score(benchmark, name, "span" if mode == "span" else "", metric, value=value)


def own_key(benchmark: str, name: str, mode: Mode, metric: str) -> str:
    """The key of such a score."""
    return str(own_score(benchmark, name, mode, metric))


class OwnOptions(BenchmarkOptions):
    """Options of a benchmark on the user's own data.

    Attributes:
        metrics: that can be monitored.
    """

    places: ClassVar[tuple[str, ...]] = ("path",)
    metrics: ClassVar[Sequence[str]] = ()

    path: Text | dict[Text, Text] | None
    instruction: Text | None

    @model_validator(mode="after")
    def _data_is_named(self) -> Self:
        if not self.path:
            raise ValueError(
                f"names no data: benchmark.{self.name}.path=<its file or folder>, or several with names: "
                f"benchmark.{self.name}.path={{mine: <…>, theirs: <…>}}"
            )
        for name in self.paths:
            if not name or "/" in name:
                raise ValueError(
                    f"path: {name!r} is no name for data, which is a part of score keys: "
                    f"benchmark.{self.name}.path={{<a name without />: <where it lies>}}"
                )
        return self

    @property
    def paths(self) -> dict[str, Path]:
        """Name of the data → its file or folder."""
        option = f"benchmark.{self.name}.path"
        if isinstance(self.path, dict):
            return {name: expanded(path, option) for name, path in self.path.items()}
        path = expanded(self.path or "", option)
        return {self.default_name(path): path}

    def default_name(self, path: Path) -> str:
        """That of the folder."""
        return path.name if path.name not in ("", "..") else path.resolve().name

    @property
    def default_splits(self) -> list[str]:
        return list(self.paths)

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return [
            own_key(self.name, name, mode, metric)
            for name in splits
            for mode in MODES
            for metric in self.metrics
        ]


class OwnTableOptions(OwnOptions):
    """Options of a benchmark on a table.

    Attributes:
        roles: what `columns` can name.
    """

    roles: ClassVar[Collection[str]] = ()

    columns: dict[Text, Text] | None

    @model_validator(mode="after")
    def _columns_are_roles(self) -> Self:
        for role in self.columns or {}:
            if role not in self.roles:
                raise ValueError(
                    f"columns: {role} is nothing that this benchmark reads; it reads {', '.join(self.roles)}"
                )
        return self

    def default_name(self, path: Path) -> str:
        """That of the file, without its suffixes."""
        return Path(path.stem).stem if path.suffix == ".gz" else path.stem


class OwnStsOptions(OwnTableOptions):
    metrics: ClassVar[Sequence[str]] = STS_METRICS
    roles: ClassVar[Collection[str]] = forms.STS.roles.keys()

    name: Literal["own_sts"]


class OwnPairsOptions(OwnTableOptions):
    metrics: ClassVar[Sequence[str]] = PAIR_METRICS
    roles: ClassVar[Collection[str]] = forms.LABELLED_PAIRS.roles.keys()

    name: Literal["own_pairs"]


class OwnRankingOptions(OwnTableOptions):
    metrics: ClassVar[Sequence[str]] = RANKING_METRICS
    roles: ClassVar[Collection[str]] = forms.RANKINGS[0].roles.keys()

    name: Literal["own_ranking"]


class OwnRetrievalOptions(OwnOptions):
    places: ClassVar[tuple[str, ...]] = ("path", "store")
    metrics: ClassVar[Sequence[str]] = RETRIEVAL_METRICS

    name: Literal["own_retrieval"]
    judgements: Text | None
    exclude_self: bool
    store: Text | None
    shard_size: Count
    index: Index

    @model_validator(mode="after")
    def _index_is_of_a_store(self) -> Self:
        if self.index != "exact" and self.store is None:
            raise ValueError(
                f"index={self.index} is of embeddings on the disk: name a folder for them with "
                "benchmark.own_retrieval.store="
            )
        if self.index != "exact" and find_spec("usearch") is None:
            raise ValueError(f"index={self.index} needs the package usearch: pip install 'idiomtune[ann]'")
        return self


class OwnValOptions(BenchmarkOptions):
    """Options of the benchmark on what is held out of the user's own training data.

    Its splits are the parts of a mixture, each scored by itself; else it has none.

    Attributes:
        max_queries, max_documents: taken at most, the same in every run.
    """

    name: Literal["own_val"]
    max_queries: Count
    max_documents: Count

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        metrics = (*RETRIEVAL_METRICS, *STS_METRICS)
        keys = [
            own_key(HELD_OUT, part, mode, m) for part in splits or [""] for mode in MODES for m in metrics
        ]
        return [f"{HELD_OUT}/score", *(f"{HELD_OUT}/{part}/score" for part in splits), *keys]


def _layout(
    benchmark: str, title: str, metrics: Sequence[str], factor: float
) -> Callable[[str, Sequence[str]], Layout]:
    def layout(split: str, keys: Sequence[str]) -> Layout:
        there = [m for m in metrics if any(own_key(benchmark, split, mode, m) in keys for mode in MODES)]
        unit = " in percent" if factor == 100 else ""
        return Layout(
            f"{benchmark}-{split}",
            f"{title} {split}{unit}",
            [("", metric) for metric in there],
            [([mode], [own_key(benchmark, split, mode, metric) for metric in there]) for mode in MODES],
            labels=["mode"],
            factor=factor,
            digits=2 if factor == 100 else 3,
        )

    return layout


def _reader(benchmark: str, means: Mapping[str, str], statistics: Sequence[str] = ()) -> _Reader:
    """What comparisons read of a record.

    Args:
        means: metric → the record's value whose mean it is; null where a query has none.
        statistics: of pairs, by their names.
    """

    def read(record: Mapping[str, Any]) -> Iterator[QueryResult]:
        query, group = f"{record['name']}/{record['id']}", record["group"]
        key = partial(own_key, benchmark, record["name"], record["mode"])
        for metric, column in means.items():
            if record[column] is not None:
                yield QueryResult(key(metric), query, group, value=float(record[column]))
        for metric in statistics:
            pair = float(record["predicted"]), float(record["gold"])
            yield QueryResult(key(metric), query, group, pair=pair, statistic=metric)

    return read


_VAL_COMPARED = ("ndcg@10", "mrr@10", "spearman")


def _read_held_out(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    means = {} if "gold" in record else {metric: metric for metric in RETRIEVAL_METRICS}
    for result in _reader(HELD_OUT, means, STS_METRICS if "gold" in record else ())(record):
        yield result
        if record.get("is_main") and result.key.rpartition("/")[2] in ("ndcg@10", "spearman"):
            yield replace(result, key=own_key(HELD_OUT, record["name"], "sentence", "score"))


def _held_out_layout(_: str, keys: Sequence[str]) -> Layout:
    """A row for each part of a mixture and mode, a column for each metric that any of them has."""
    names = [key.split("/")[1:] for key in keys if key.partition("/")[0] == HELD_OUT]
    metrics = [m for m in ("score", *RETRIEVAL_METRICS, *STS_METRICS) if m in {name[-1] for name in names}]
    places = dict.fromkeys("/".join(name[:-1]) for name in names)
    return Layout(
        HELD_OUT,
        "Held out of the training data",
        [("", metric) for metric in metrics],
        [([place], ["/".join(filter(None, (HELD_OUT, place, m))) for m in metrics]) for place in places],
        labels=["part and mode"],
    )


def _declared(
    options: type[OwnOptions],
    name: str,
    build: str,
    title: str,
    *,
    compared: Sequence[str],
    table: Sequence[str],
    read: _Reader,
    task: str,
    factor: float = 1.0,
) -> BenchmarkType:
    """A benchmark of this package.

    Args:
        compared: metrics that models are compared by, and that are in the card; the first is drawn.
        table: metrics in its table.
    """
    return BenchmarkType(
        name,
        options,
        f"train.benchmarks.own.{build}",
        title=title,
        is_fact=lambda key: key.endswith("_threshold"),
        is_headline=lambda key: key.rpartition("/")[2] in compared,
        is_compared=lambda key: key.rpartition("/")[2] in compared,
        is_curve=lambda key: key.rpartition("/")[2] == compared[0],
        layout=_layout(name, title, table, factor),
        read_record=read,
        hub_task=task,
    )


DECLARED = [
    _declared(
        OwnRetrievalOptions,
        "own_retrieval",
        "retrieval:build",
        "Own retrieval:",
        compared=("ndcg@10", "map@100", "recall@100", "mrr@10"),
        table=RETRIEVAL_METRICS,
        read=_reader("own_retrieval", {metric: metric for metric in RETRIEVAL_METRICS}),
        task="information-retrieval",
        factor=100.0,
    ),
    _declared(
        OwnStsOptions,
        "own_sts",
        "pairs:build_scored",
        "Own scored pairs:",
        compared=STS_METRICS,
        table=STS_METRICS,
        read=_reader("own_sts", {}, STS_METRICS),
        task="semantic-similarity",
    ),
    _declared(
        OwnPairsOptions,
        "own_pairs",
        "pairs:build_labelled",
        "Own labelled pairs:",
        compared=("average_precision", "roc_auc", "accuracy"),
        table=(*PAIR_METRICS, *PAIR_THRESHOLDS),
        read=_reader("own_pairs", {"accuracy": "is_right"}, ("average_precision", "roc_auc")),
        task="binary-classification",
    ),
    _declared(
        OwnRankingOptions,
        "own_ranking",
        "ranking:build",
        "Own rankings:",
        compared=("ndcg@10", "map", "mrr", "r_precision", "spearman"),
        table=RANKING_METRICS,
        read=_reader("own_ranking", {metric: metric for metric in RANKING_METRICS}),
        task="reranking",
    ),
    BenchmarkType(
        HELD_OUT,
        OwnValOptions,
        "train.factory.own:held_out_benchmark",
        title="Held out of the training data",
        has_splits=False,
        is_headline=lambda key: key.rpartition("/")[2] in _VAL_COMPARED,
        is_compared=lambda key: key.rpartition("/")[2] in (*_VAL_COMPARED, "score"),
        is_curve=lambda key: key.rpartition("/")[2] == "score",
        layout=_held_out_layout,
        read_record=_read_held_out,
    ),
]
