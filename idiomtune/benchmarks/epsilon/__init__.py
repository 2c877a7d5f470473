"""ε-compositionality: does a compound stay apart from its rewordings? Declared here, scored in `scoring`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from idiomtune.data.locations import data_files
from idiomtune.data.names import EPSILON_CLASSES, LANGUAGE_NAMES, EpsilonLanguage
from idiomtune.data.ncimp import FILES, WORDS, read_ncimp
from idiomtune.plugins.benchmark import BenchmarkOptions, TableCell
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import Count, Text, as_list
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Metric, Score

if TYPE_CHECKING:
    from idiomtune.benchmarks.epsilon.scoring import EpsilonBenchmark

log = logging.getLogger(__name__)

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
_OF_PAIRS = (
    *("rank_biserial", "p_value", "rank_biserial_signed"),
    *(f"rank_biserial_order_free{end}" for end in ("", "_low", "_high")),
    *("p_value_order_free", "num_pairs"),
)
_DISTANCES = tuple(f"{part}_distance_{kind}" for part in ("phrase", "context") for kind in ("mean", "std"))
_FACTS = ("num_compounds", *_DISTANCES)  # of a class or all of them


def epsilon_score(
    language: EpsilonLanguage, class_: str, metric: str, word: str = "", value: float = 0.0
) -> Score:
    """`epsilon/<class>/<metric>[/modifier|/head]`; Portuguese under `epsilon/pt/`."""
    mode = class_ if language == "en" else f"{language}/{class_}"
    return Score("epsilon", "", mode, metric, word, value)


def kind_of(p_values: Mapping[str, float]) -> str:
    """The kind of a model, by a rule that agrees with the paper on each of its models.

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


def reading_note(p_values: Mapping[str, float]) -> str:
    """The interpretation of the classes' p in a sentence; empty if a class has none."""
    if set(p_values) != set(EPSILON_CLASSES):
        return ""
    name = kind_of(p_values)
    values = ", ".join(f"{class_} {p_values[class_]:.3f}" for class_ in EPSILON_CLASSES)
    return (
        f"{name}: {KINDS[name]} (idiomaticity-ε above baseline-ε at p < {SIGNIFICANT}, of C at "
        f"p ≤ {WEAK:.2f}; p: {values})"
    )


def _cell(score: Score) -> TableCell | None:
    if score.slice or score.metric not in ("rank_biserial", "p_value"):
        return None
    *language, class_ = score.mode.split("/")
    return LANGUAGE_NAMES["".join(language) or "en"], class_, score.metric


@benchmark(
    "epsilon",
    title="epsilon-compositionality on NCIMP",
    metrics=[
        Metric("rank_biserial", "", is_drawn=True, title="rank-biserial"),  # 0.5 = no effect
        Metric("p_value", "", title="p"),
        *(Metric(name, "", "detail") for name in (*_OF_PAIRS[2:], *_FACTS)),
    ],
    rows="language",
    cell=_cell,
    report="idiomtune.benchmarks.epsilon.report",
    hub_dataset="ncimp",
)
class EpsilonBenchmarkOptions(BenchmarkOptions):
    name: Literal["epsilon"]
    languages: Annotated[list[EpsilonLanguage], BeforeValidator(as_list), Field(min_length=1)]
    instruction: Text | None
    orders: Count

    def possible_scores(self, splits: Sequence[str]) -> list[Score]:  # noqa: ARG002
        scores = []
        for language in dict.fromkeys(self.languages):
            words = ("", *WORDS) if language == "en" else ("",)
            names = [*product(EPSILON_CLASSES, _OF_PAIRS, words), (ALL, "num_pairs", "")]
            names += product([*EPSILON_CLASSES, ALL], _FACTS, [""])
            scores += [epsilon_score(language, class_, metric, word) for class_, metric, word in names]
        return scores

    def build(self, inputs: RunInputs) -> EpsilonBenchmark:
        from idiomtune.benchmarks.epsilon.scoring import EpsilonBenchmark

        files = data_files(inputs, FILES)
        data = [read_ncimp(files, language) for language in dict.fromkeys(self.languages)]
        for read in data:
            log.info("%s", read.describe())
        return EpsilonBenchmark(data, self)
