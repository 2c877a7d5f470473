"""AdMIRe: which of five images shows what a compound means? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from train.benchmarks.admire.keys import ADMIRE_METRICS, MAJORITY, AdmireMode, admire_key, admire_keys
from train.data.names import ADMIRE_CV_SPLIT, ADMIRE_SENSES, AdmireSplit
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import as_list

_METRIC_NAMES = {
    "top1_accuracy": "top-1",
    "rank_difference": "rank difference ↓",
    "ndcg@5": "nDCG@5",
    "sense_accuracy": "sense accuracy",
    "sense_macro_f1": "sense macro-F1",
}


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
    return Layout(
        f"admire-{split}",
        f"AdMIRe, {split}" + (": ↓ smaller is better" if "rank_difference" in metrics else ""),
        [("", _METRIC_NAMES[metric]) for metric in metrics],
        [([mode], [admire_key(split, mode, metric) for metric in metrics]) for mode in modes],
        labels=["mode"],
    )


def _is_headline(key: str) -> bool:
    _, *parts = key.split("/")
    return len(parts) == 3 and parts[2] in (*ADMIRE_METRICS, "sense_accuracy") and not _is_constant(key)


def _is_constant(key: str) -> bool:
    return f"/{MAJORITY}/" in key


def _is_compared(key: str) -> bool:
    _, *parts = key.split("/")
    return len(parts) == 3 and parts[2] in ADMIRE_METRICS


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    split, mode, item, compound = (record[name] for name in ("split", "mode", "id", "compound"))
    for metric in ADMIRE_METRICS:
        if metric in record:  # not where there is no gold
            for sense in (None, record.get("sense")):
                if sense is None or sense in ADMIRE_SENSES:
                    key = admire_key(split, mode, metric, sense)
                    yield QueryResult(key, item, compound, value=float(record[metric]))


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
        read_record=_read_record,
        examples="train.benchmarks.admire.examples:examples",
        hub_dataset="admire",
        hub_task="sentence-ranking",
    )
]
