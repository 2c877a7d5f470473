"""Benchmarks on users' own files: retrieval and scored pairs.

Declared here; read and scored in a module each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from idiomtune.io.files import user_path
from idiomtune.plugins.benchmark import BenchmarkOptions, QueryResult, TableCell, results_of
from idiomtune.plugins.dataset import OWN_VAL
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import Count, Text
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Metric, Score

if TYPE_CHECKING:
    from idiomtune.benchmarks.user.pairs import HeldOutBenchmark, UserPairBenchmark
    from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark

_REPORT = "idiomtune.benchmarks.user.report"


Mode = Literal["sentence", "span"]
MODES: tuple[Mode, ...] = ("sentence", "span")
KEY_MODES: dict[Mode, str] = {"sentence": "", "span": "span"}  # in score keys and per-query records
_SUFFIXES = re.compile(r"(\.(csv|tsv|jsonl|ndjson|parquet|xlsx))?(\.gz)?$", re.IGNORECASE)  # of tables

RETRIEVAL_METRICS = (
    *(f"ndcg@{k}" for k in (1, 5, 10, 100)),
    "map@100",
    *(f"recall@{k}" for k in (1, 5, 10, 100)),
    "precision@1",
    "mrr@10",
)
STS_METRICS = ("spearman", "pearson")


def user_score(benchmark: str, name: str, mode: Mode, metric: str, value: float = 0.0) -> Score:
    """`<benchmark>/<name of the data, if any>/<metric>`; of spans `<benchmark>/<name>/span/<metric>`."""
    return Score(benchmark, name, KEY_MODES[mode], metric, value=value)


def held_out_score(score: Score) -> Score:
    """A score of held-out data. A mixture's parts share a table: the mode begins with the part's name."""
    return replace(score, split="", mode="/".join(filter(None, (score.split, score.mode))))


def _metrics(names: Sequence[str], compared: Sequence[str], drawn: str = "") -> list[Metric]:
    """Metrics of a table in its order."""
    return [
        Metric(name, role="headline" if name in compared else "detail", is_drawn=name == drawn)
        for name in names
    ]


_RETRIEVAL = _metrics(RETRIEVAL_METRICS, ("ndcg@10", "map@100", "recall@100", "mrr@10"), "ndcg@10")
_STS = [Metric(name, is_drawn=name == STS_METRICS[0], statistic=name) for name in STS_METRICS]
_FOUND_FIRST = "precision@1"
_HELD_OUT = [
    Metric("score", role="compared", is_drawn=True),
    Metric("median_rank", better="lower", role="detail", title="median rank"),
    Metric(_FOUND_FIRST, role="detail", title="found first"),
    *_metrics([name for name in RETRIEVAL_METRICS if name != _FOUND_FIRST], ("ndcg@10", "mrr@10")),
    Metric("spearman", statistic="spearman"),
    Metric("pearson", role="detail", statistic="pearson"),
]


# Of what is held out. Not `score`, which is that of another row: of spans, or the mean over parts.
_IN_TABLE = ("median_rank", _FOUND_FIRST, "ndcg@10", "mrr@10", *STS_METRICS)


def _cell(score: Score) -> TableCell:
    return score.mode or "sentence", "", score.metric


def _held_out_cell(score: Score) -> TableCell | None:
    return _cell(score) if score.metric in _IN_TABLE else None


def _read_held_out(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    for result in results_of(record, OWN_VAL, _HELD_OUT[1:], cluster="group"):
        yield result
        if record.get("is_main") and result.score.metric in ("ndcg@10", "spearman"):
            yield replace(result, score=Score(OWN_VAL, record["split"], "", "score"))


PAIRS = {"metrics": _STS, "cell": _cell, "cluster": "group", "hub_task": "semantic-similarity"}
RETRIEVAL = {
    **{"metrics": _RETRIEVAL, "cell": _cell, "cluster": "group", "hub_task": "information-retrieval"},
    **{"percent": True, "report": _REPORT},
}


class UserBenchmarkOptions(BenchmarkOptions):
    """Options of a benchmark on the user's own data."""

    data_options: ClassVar[tuple[str, ...]] = ("path",)

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
                    f"path: {name!r} cannot be a name for data, because it is part of score keys: "
                    f"benchmark.{self.name}.path={{<a name without />: <path>}}"
                )
        return self

    @property
    def paths(self) -> dict[str, Path]:
        """Name of the data → its file or folder."""
        option = f"benchmark.{self.name}.path"
        if isinstance(self.path, dict):
            return {name: user_path(path, option) for name, path in self.path.items()}
        path = user_path(self.path or "", option)
        name = path.name if path.name not in ("", "..") else path.resolve().name
        return {_SUFFIXES.sub("", name): path}

    @property
    def default_splits(self) -> list[str]:
        return list(self.paths)

    @property
    def score_modes(self) -> list[str]:
        return ["", "span"]


@benchmark("own_sts", title="Own scored pairs", **PAIRS)
class UserStsOptions(UserBenchmarkOptions):
    """Options of a benchmark on tables of scored pairs.

    Attributes:
        columns: role → column, where the names of the file's columns are not understood as they are.
    """

    name: Literal["own_sts"]
    columns: dict[Text, Text] | None

    def build(self, inputs: RunInputs) -> UserPairBenchmark:  # noqa: ARG002
        from idiomtune.benchmarks.user.pairs import UserPairBenchmark, read_pairs

        reading = self.name, self.columns, self.instruction
        data = {name: read_pairs(path, *reading) for name, path in self.paths.items()}
        return UserPairBenchmark(self.name, data, list(self.paths.values()))


@benchmark("own_retrieval", title="Own retrieval", **RETRIEVAL)
class UserRetrievalOptions(UserBenchmarkOptions):
    name: Literal["own_retrieval"]
    judgements: Text | None
    exclude_self: bool
    missing: Literal["error", "ignore"]

    def build(self, inputs: RunInputs) -> UserRetrievalBenchmark:  # noqa: ARG002
        from idiomtune.benchmarks.user.collections import read_collection
        from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark

        reading = self.judgements, self.instruction, self.missing, self.exclude_self
        return UserRetrievalBenchmark(
            [read_collection(name, path, *reading) for name, path in self.paths.items()]
        )


@benchmark(
    OWN_VAL,
    title="Held out of the training data",
    metrics=_HELD_OUT,
    rows="part and mode",
    cell=_held_out_cell,
    cluster="group",
    read_record=_read_held_out,
    report=_REPORT,
)
class HeldOutOptions(BenchmarkOptions):
    """Options of the benchmark on the rows held out of the user's training data.

    Its splits are the parts of a mixture, each scored by itself; else it has none.

    Attributes:
        max_queries, max_documents: taken at most, the same in every run.
    """

    name: Literal["own_val"]
    max_queries: Count
    max_documents: Count

    def build(self, inputs: RunInputs) -> HeldOutBenchmark:
        from idiomtune.benchmarks.user.pairs import build_held_out

        return build_held_out(inputs, self)

    def possible_scores(self, splits: Sequence[str]) -> list[Score]:
        metrics = (*RETRIEVAL_METRICS, *STS_METRICS)
        parts = product(splits or [""], MODES, metrics)
        means = [Score(OWN_VAL, part, "", "score") for part in ("", *splits)]
        scores = [user_score(OWN_VAL, *of_score) for of_score in parts]
        return list(map(held_out_score, [*means, *scores]))
