"""IdioLink: which documents convey what the idiom means in the query? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, model_validator

from train.benchmarks.idiolink.keys import (
    IDIOLINK_METRICS,
    IDIOLINK_SLICES,
    Bm25Mode,
    MultivectorMode,
    idiolink_key,
    idiolink_keys,
)
from train.data.names import CV_SPLIT, QueryMode
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import Count, Names, as_list

_MODES = (*get_args(QueryMode), *get_args(MultivectorMode))
_BM25 = "bm25_"  # before a mode


class IdioLinkBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    fold_split: ClassVar[str] = CV_SPLIT
    has_others: ClassVar[bool] = True

    name: Literal["idiolink"]
    split: Names
    query_modes: list[QueryMode]
    bm25_modes: list[Bm25Mode]
    multivector_modes: Annotated[list[MultivectorMode], BeforeValidator(as_list)]
    window_words: Count
    diagnosis: bool

    @model_validator(mode="after")
    def _something_is_scored(self) -> Self:
        if not (self.query_modes or self.bm25_modes or self.multivector_modes):
            raise ValueError("query_modes, bm25_modes and multivector_modes are all empty: nothing is scored")
        return self

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return idiolink_keys(splits, [*self.query_modes, *self.bm25_modes, *self.multivector_modes])


def _layout(split: str, keys: Sequence[str]) -> Layout:
    metrics = {"r_precision": "R-Precision", "ndcg@10": "nDCG@10"}
    wanted = [
        (mode, metric)
        for mode in _MODES
        for metric in metrics
        if any(idiolink_key(split, m, metric) in keys for m in (mode, f"{_BM25}{mode}"))
    ]
    return Layout(
        f"idiolink-{split}",
        f"IdioLink, {split}: R-Precision and nDCG@10 in percent",
        [(mode, metrics[metric]) for mode, metric in wanted],
        [((), [idiolink_key(split, mode, metric) for mode, metric in wanted])],
        # BM25 is a separate model, and does not depend on training.
        constant=[("BM25", [idiolink_key(split, f"{_BM25}{mode}", metric) for mode, metric in wanted])],
        factor=100.0,
        digits=2,
    )


def _is_compared(key: str) -> bool:
    _, *parts = key.split("/")
    return len(parts) == 3 and parts[2] in IDIOLINK_METRICS and not parts[1].startswith(_BM25)


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    split, mode, query, idiom = (record[name] for name in ("split", "mode", "id", "idiom"))
    slices = (None, record["usage"]) if record.get("usage") in IDIOLINK_SLICES else (None,)
    for metric in IDIOLINK_METRICS:
        for slice_ in slices:
            key = idiolink_key(split, mode, metric, slice_)
            yield QueryResult(key, query, idiom, value=float(record[metric]))


DECLARED = [
    BenchmarkType(
        "idiolink",
        IdioLinkBenchmarkOptions,
        "train.factory.benchmarks:idiolink_benchmark",
        title="IdioLink",
        smaller_is_better=frozenset({"median_rank"}),
        is_headline=_is_compared,
        is_compared=_is_compared,
        is_curve=lambda key: _is_compared(key) and key.endswith("/ndcg@10"),
        is_constant=lambda key: f"/{_BM25}" in key,
        layout=_layout,
        read_record=_read_record,
        examples="train.benchmarks.idiolink.examples:examples",
        figures="train.benchmarks.idiolink.figures:figures",
        hub_dataset="Intellexus/IdioLink",
        hub_task="information-retrieval",
    )
]
