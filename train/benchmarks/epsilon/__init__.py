"""ε-compositionality: does a compound stay apart from its rewordings? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from train.benchmarks.epsilon.keys import epsilon_key, epsilon_keys
from train.data.names import EPSILON_CLASSES, LANGUAGE_NAMES, EpsilonLanguage
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout
from train.declarations.options import Count, Text, as_list


class EpsilonBenchmarkOptions(BenchmarkOptions):
    name: Literal["epsilon"]
    languages: Annotated[list[EpsilonLanguage], BeforeValidator(as_list), Field(min_length=1)]
    classes: Literal["type", "token"]
    phrases: Literal["word", "compound"]
    versions: Literal["same_word", "any_word"]
    instruction: Text | None
    orders: Count

    @model_validator(mode="after")
    def _two_words_share_no_synonyms(self) -> Self:
        if self.versions == "any_word" and self.phrases == "word":
            raise ValueError("versions=any_word compares whole compounds: it needs phrases=compound")
        return self

    def score_keys(self, splits: Sequence[str]) -> list[str]:  # noqa: ARG002
        languages = list(dict.fromkeys(self.languages))
        return epsilon_keys(languages, by_word=self.versions == "same_word")


def _layout(split: str, keys: Sequence[str]) -> Layout:  # noqa: ARG001  it has no splits
    metrics = {"rank_biserial": "rank-biserial", "p_value": "p"}
    languages = [
        lang for lang in get_args(EpsilonLanguage) if epsilon_key(lang, "C", "rank_biserial") in keys
    ]
    return Layout(
        "epsilon",
        "ε-compositionality: rank-biserial correlation (0.5 = no effect) and p, by class of compound",
        [(class_, name) for class_ in EPSILON_CLASSES for name in metrics.values()],
        [
            ([LANGUAGE_NAMES[lang]], [epsilon_key(lang, c, m) for c in EPSILON_CLASSES for m in metrics])
            for lang in languages
        ],
        labels=["language"],
    )


DECLARED = [
    BenchmarkType(
        "epsilon",
        EpsilonBenchmarkOptions,
        "train.factory.benchmarks:epsilon_benchmark",
        title="epsilon-compositionality on NCIMP",
        has_splits=False,
        is_fact=lambda _: True,
        is_headline=lambda key: key.rpartition("/")[2] in ("rank_biserial", "p_value"),
        is_compared=lambda _: False,
        is_curve=lambda key: key.count("/") == 2 and key.endswith("/rank_biserial"),
        layout=_layout,
        published="train.benchmarks.epsilon.published:PUBLISHED",
        hub_dataset="ncimp",
    )
]
