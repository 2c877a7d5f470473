"""SemEval-2022 Task 2B: are two sentences as similar as people say? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from train.benchmarks.semeval2022.keys import SEMEVAL_LANGUAGES, SEMEVAL_SUBSETS, semeval_key, semeval_keys
from train.data.names import LANGUAGE_NAMES, SemEvalSplit
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import as_list

_SUBSET_NAMES = {"idiom": "idiom", "sts": "STS", "all": "all"}


class SemEvalBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = get_args(SemEvalSplit)

    name: Literal["semeval2022"]
    split: Annotated[list[SemEvalSplit], BeforeValidator(as_list), Field(min_length=1)]
    setting: Literal["pre_train", "fine_tune", "both"]

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return semeval_keys(splits)


def _layout(split: str, keys: Sequence[str]) -> Layout:
    languages = [
        language
        for language in SEMEVAL_LANGUAGES
        if any(semeval_key(split, language, subset) in keys for subset in SEMEVAL_SUBSETS)
    ]
    return Layout(
        f"semeval-{split}",
        f"SemEval-2022 Task 2B, {split}: Spearman's correlation",
        [("Spearman", _SUBSET_NAMES[subset]) for subset in SEMEVAL_SUBSETS],
        [
            ([LANGUAGE_NAMES[language]], [semeval_key(split, language, s) for s in SEMEVAL_SUBSETS])
            for language in languages
        ],
        labels=["language"],
    )


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    language = record["language"].lower()
    if language not in SEMEVAL_LANGUAGES or record["subset"] not in SEMEVAL_SUBSETS:
        raise ValueError(language, record["subset"])
    # STS pairs have no expression: each is by itself.
    cluster = record["expression"] or record["id"]
    pair = float(record["predicted"]), float(record["gold"])
    for lang in (language, "all"):
        for subset in (record["subset"], "all"):
            yield QueryResult(semeval_key(record["split"], lang, subset), record["id"], cluster, pair=pair)


DECLARED = [
    BenchmarkType(
        "semeval2022",
        SemEvalBenchmarkOptions,
        "train.factory.benchmarks:semeval_benchmark",
        title="SemEval-2022 Task 2B",
        # dev's halves are for choosing on one
        is_headline=lambda key: key.split("/")[1] not in ("dev_a", "dev_b"),
        is_curve=lambda key: key.split("/")[2] == "all",
        layout=_layout,
        read_record=_read_record,
        hub_dataset="semeval2022_task2b",
        hub_task="semantic-similarity",
    )
]
