"""SemEval-2022 Task 2B: are two sentences as similar as people say? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from train.data.names import LANGUAGE_NAMES, SemEvalSplit
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout, QueryResult
from train.declarations.options import as_list
from train.declarations.score import Score

LANGUAGES = ("en", "pt", "gl", "all")
SUBSETS = {"idiom": "idiom", "sts": "STS", "all": "all"}


class SemEvalBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = get_args(SemEvalSplit)

    name: Literal["semeval2022"]
    split: Annotated[list[SemEvalSplit], BeforeValidator(as_list), Field(min_length=1)]
    setting: Literal["pre_train", "fine_tune", "both"]

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return [str(spearman_of(*parts)) for parts in product(splits, LANGUAGES, SUBSETS)]


def spearman_of(split: str, language: str, subset: str, value: float = 0.0) -> Score:
    """`semeval2022/<split>/<language>/<subset>/spearman`."""
    return Score("semeval2022", split, f"{language}/{subset}", "spearman", value=value)


def _layout(split: str, keys: Sequence[str]) -> Layout:
    rows = {lang: [str(spearman_of(split, lang, subset)) for subset in SUBSETS] for lang in LANGUAGES}
    return Layout(
        f"semeval-{split}",
        f"SemEval-2022 Task 2B, {split}: Spearman's correlation",
        [("Spearman", name) for name in SUBSETS.values()],
        [([LANGUAGE_NAMES[lang]], row) for lang, row in rows.items() if {*row} & {*keys}],
        labels=["language"],
    )


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    language, subset = record["language"].lower(), record["subset"]
    if language not in LANGUAGES or subset not in SUBSETS:
        raise ValueError(language, subset)
    # STS pairs have no expression: each is by itself.
    cluster = record["expression"] or record["id"]
    pair = float(record["predicted"]), float(record["gold"])
    for parts in product((language, "all"), (subset, "all")):
        yield QueryResult(str(spearman_of(record["split"], *parts)), record["id"], cluster, pair=pair)


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
