"""ε-compositionality: does a compound stay apart from its rewordings? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from train.data.names import EPSILON_CLASSES, LANGUAGE_NAMES, EpsilonLanguage
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout
from train.declarations.options import Count, Text, as_list
from train.declarations.score import Score

WORDS = ("modifier", "head")
ALL = "all"  # classes
SIGNIFICANT = 0.05
WEAK = 0.10  # at this p of C, as S-GPT's .100, a model is no longer called human-aligned
# The paper's three kinds of models.
KINDS = {
    "anti-compositional": "even compositional compounds stay apart from rewordings",
    "human-aligned": "not or partly compositional compounds stay apart from rewordings, others do not",
    "compositionally-inclined": "compounds of no class stay apart from rewordings",
}

# Of a class, by pairs: also of one word's synonyms alone.
_METRICS = (
    "p_value",
    "rank_biserial",
    "rank_biserial_signed",
    "rank_biserial_order_free",
    "rank_biserial_order_free_low",
    "rank_biserial_order_free_high",
    "p_value_order_free",
    "num_pairs",
)
# Of a class or all of them.
_FACTS = (
    "num_compounds",
    "phrase_distance_mean",
    "phrase_distance_std",
    "context_distance_mean",
    "context_distance_std",
)


def epsilon_score(
    language: EpsilonLanguage, class_: str, metric: str, word: str = "", value: float = 0.0
) -> Score:
    """`epsilon/<class>/<metric>[/modifier|/head]`; Portuguese under `epsilon/pt/`."""
    return Score("epsilon", "" if language == "en" else language, class_, metric, word, value)


def kind_of(p_values: Mapping[str, float]) -> str:
    """The kind of a model, by a rule that gives each of the paper's models the kind that it has there.

    Anti-compositional if C stays apart from its rewordings (p ≤ 0.10), else human-aligned if PC or NC does
    (p < 0.05), else compositionally-inclined.

    Args:
        p_values: of the classes C, PC and NC.
    """
    if p_values["C"] <= WEAK:
        return "anti-compositional"
    if min(p_values["PC"], p_values["NC"]) < SIGNIFICANT:
        return "human-aligned"
    return "compositionally-inclined"


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
        scores = []
        for language in dict.fromkeys(self.languages):
            words = ("", *WORDS) if self.versions == "same_word" and language == "en" else ("",)
            names = [*product(EPSILON_CLASSES, _METRICS, words), (ALL, "num_pairs", "")]
            names += product([*EPSILON_CLASSES, ALL], _FACTS, [""])
            scores += [epsilon_score(language, class_, metric, word) for class_, metric, word in names]
        return list(map(str, scores))


def _layout(split: str, keys: Sequence[str]) -> Layout:  # noqa: ARG001  it has no splits
    metrics = {"rank_biserial": "rank-biserial", "p_value": "p"}
    columns = list(product(EPSILON_CLASSES, metrics))
    languages: tuple[EpsilonLanguage, ...] = get_args(EpsilonLanguage)
    rows = {lang: [str(epsilon_score(lang, *column)) for column in columns] for lang in languages}
    return Layout(
        "epsilon",
        "ε-compositionality: rank-biserial correlation (0.5 = no effect) and p, by class of compound",
        [(class_, metrics[metric]) for class_, metric in columns],
        [([LANGUAGE_NAMES[lang]], row) for lang, row in rows.items() if row[0] in keys],
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
