"""IdioLink: which documents convey what the idiom means in the query? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, model_validator

from train.data.names import CV_SPLIT, QueryMode
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import Count, Names, as_list
from train.declarations.score import Score

Bm25Mode = Literal["bm25_sentence", "bm25_span"]
MultivectorMode = Literal["span_window", "span_late"]  # several vectors a document

METRICS = {"r_precision": "R-Precision", "ndcg@10": "nDCG@10"}
SLICES = ("literal", "idiomatic", "gold", "silver")
VECTORS_PER_DOCUMENT = "vectors_per_document"
USAGES = ("literal", "idiomatic", "simplification", "sense")
RELEVANT_USAGES = USAGES[1:]  # of an idiomatic query
_BM25 = "bm25_"  # before a mode

_name = partial(Score, "idiolink")


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
        modes = [*self.query_modes, *self.bm25_modes, *self.multivector_modes]
        parts = [*product(METRICS, ("", *SLICES)), *product(["recall_at_r"], RELEVANT_USAGES)]
        scores = [_name(split, mode, *part) for split in splits for mode in modes for part in parts]
        scores += [_name(s, m, VECTORS_PER_DOCUMENT) for s in splits for m in self.multivector_modes]
        return list(map(str, scores))


def _layout(split: str, keys: Sequence[str]) -> Layout:
    modes = (*get_args(QueryMode), *get_args(MultivectorMode))
    ours = {column: str(_name(split, *column)) for column in product(modes, METRICS)}
    bm25 = {column: str(_name(split, _BM25 + column[0], column[1])) for column in ours}
    wanted = [column for column in ours if {ours[column], bm25[column]} & {*keys}]
    return Layout(
        f"idiolink-{split}",
        f"IdioLink, {split}: R-Precision and nDCG@10 in percent",
        [(mode, METRICS[metric]) for mode, metric in wanted],
        [((), [ours[column] for column in wanted])],
        # BM25 is a separate model, and does not depend on training.
        constant=[("BM25", [bm25[column] for column in wanted])],
        factor=100.0,
        digits=2,
    )


def _is_compared(key: str) -> bool:
    _, *parts = key.split("/")
    return len(parts) == 3 and parts[2] in METRICS and not parts[1].startswith(_BM25)


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    slices = ("", record["usage"]) if record.get("usage") in SLICES else ("",)
    for metric, slice_ in product(METRICS, slices):
        key = str(_name(record["split"], record["mode"], metric, slice_))
        yield QueryResult(key, record["id"], record["idiom"], value=float(record[metric]))


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
        examples="train.benchmarks.idiolink.pages:examples",
        figures="train.benchmarks.idiolink.pages:figures",
        hub_dataset="Intellexus/IdioLink",
        hub_task="information-retrieval",
    )
]
