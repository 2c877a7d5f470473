"""AdMIRe: which of five images shows what a compound means? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from train.benchmarks.admire.keys import (
    ADMIRE_METRICS,
    MAJORITY,
    SENSE_METRICS,
    AdmireMode,
    admire_key,
    admire_keys,
)
from train.data.names import ADMIRE_CV_SPLIT, ADMIRE_SENSES, AdmireSplit, AStitchSplit, ExpertsMode
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import as_list

_METRIC_NAMES = {
    "top1_accuracy": "top-1",
    "rank_difference": "rank difference ↓",
    "ndcg@5": "nDCG@5",
    "sense_accuracy": "sense accuracy",
    "sense_macro_f1": "sense macro-F1",
}


_METRICS_BY_SENSE = ("top1_accuracy", "ndcg@5", "sense_accuracy")  # in tables: the other metrics add nothing


class AdmireBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = get_args(AdmireSplit)
    fold_split: ClassVar[str] = ADMIRE_CV_SPLIT

    name: Literal["admire"]
    split: Annotated[list[AdmireSplit], BeforeValidator(as_list), Field(min_length=1)]
    modes: Annotated[list[AdmireMode], BeforeValidator(as_list), Field(min_length=1)]

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return admire_keys(splits, self.modes)


def _layout(split: str, keys: Sequence[str]) -> Layout:
    here = [parts for key in keys if (parts := key.split("/"))[:2] == ["admire", split] and len(parts) == 4]
    modes = list(dict.fromkeys(parts[2] for parts in here))
    metrics = [m for m in _METRIC_NAMES if any(parts[3] == m for parts in here)]
    columns: list[tuple[str | None, str]] = [(None, metric) for metric in metrics]
    columns += [
        (sense, metric)
        for sense in ADMIRE_SENSES
        for metric in _METRICS_BY_SENSE
        if any(admire_key(split, mode, metric, sense) in keys for mode in modes)
    ]
    return Layout(
        f"admire-{split}",
        f"AdMIRe, {split}" + (": ↓ smaller is better" if "rank_difference" in metrics else ""),
        [(sense or "", _METRIC_NAMES[metric]) for sense, metric in columns],
        [([mode], [admire_key(split, mode, metric, sense) for sense, metric in columns]) for mode in modes],
        labels=["mode"],
    )


def _is_headline(key: str) -> bool:
    _, *parts = key.split("/")
    return len(parts) == 3 and parts[2] in (*ADMIRE_METRICS, "sense_accuracy") and not _is_constant(key)


def _is_constant(key: str) -> bool:
    return f"/{MAJORITY}/" in key


def _is_compared(key: str) -> bool:
    """Of experts also each sense: each has an expert of its own."""
    _, *parts = key.split("/")
    is_whole = len(parts) == 3
    by_sense = len(parts) == 4 and parts[1] in get_args(ExpertsMode)
    return (is_whole or by_sense) and parts[2] in (*ADMIRE_METRICS, *SENSE_METRICS) and not _is_constant(key)


def read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    """What a record adds to each score."""
    split, mode, item, compound = (record[name] for name in ("split", "mode", "id", "compound"))
    senses = (None, record["sense"]) if record.get("sense") in ADMIRE_SENSES else (None,)
    for metric in ADMIRE_METRICS:
        for sense in senses if metric in record else ():  # without gold there are none
            key = admire_key(split, mode, metric, sense)
            yield QueryResult(key, item, compound, value=float(record[metric]))
    if "predicted_sense" not in record or senses == (None,):
        return
    predicted, gold = (float(record[name] == "literal") for name in ("predicted_sense", "sense"))
    for sense in senses:
        key = admire_key(split, mode, "sense_accuracy", sense)
        yield QueryResult(key, item, compound, value=float(predicted == gold))
    if split in get_args(AStitchSplit):
        key = admire_key(split, mode, "sense_macro_f1")
        yield QueryResult(key, item, compound, pair=(predicted, gold), statistic="macro_f1")


DECLARED = [
    BenchmarkType(
        "admire",
        AdmireBenchmarkOptions,
        "train.factory.benchmarks:admire_benchmark",
        title="AdMIRe",
        smaller_is_better=frozenset({"rank_difference"}),
        is_headline=_is_headline,
        is_compared=_is_compared,
        is_curve=lambda key: _is_compared(key) and key.endswith("/top1_accuracy"),
        is_constant=_is_constant,
        layout=_layout,
        read_record=read_record,
        examples="train.benchmarks.admire.examples:examples",
        hub_dataset="admire",
        hub_task="sentence-ranking",
    )
]
