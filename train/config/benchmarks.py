"""The section `benchmark`: one class a benchmark, with the splits it has and the scores it can give.

A new benchmark is a class here, and a field of :class:`BenchmarkSettings`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from train.config.base import Count, Names, Section, Text, as_list
from train.scores import (
    AdmireMode,
    AdmireSplit,
    Bm25Mode,
    EpsilonLanguage,
    MultivectorMode,
    QueryMode,
    SemEvalSplit,
    admire_keys,
    epsilon_keys,
    idiolink_keys,
    semeval_keys,
)


class BenchmarkSection(Section, ABC):
    """What the settings need to know of any benchmark.

    Attributes:
        own_splits: those that it has; none where it has no splits at all.
        has_others: it may also have splits that no other benchmark knows (in a user's own data).
    """

    own_splits: ClassVar[tuple[str, ...]] = ()
    has_others: ClassVar[bool] = False

    @property
    def default_splits(self) -> list[str]:
        """Scored unless `split=` names another one that it has."""
        return list(dict.fromkeys(getattr(self, "split", ())))

    @abstractmethod
    def score_keys(self, splits: Sequence[str]) -> list[str]:
        """Every score that it can give on these splits."""


class IdioLinkBenchmarkSettings(BenchmarkSection):
    own_splits = ("train", "val", "test")
    has_others = True

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


class SemEvalBenchmarkSettings(BenchmarkSection):
    own_splits = get_args(SemEvalSplit)

    name: Literal["semeval2022"]
    split: Annotated[list[SemEvalSplit], BeforeValidator(as_list), Field(min_length=1)]
    setting: Literal["pre_train", "fine_tune", "both"]

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return semeval_keys(splits)


class EpsilonBenchmarkSettings(BenchmarkSection):
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


class AdmireBenchmarkSettings(BenchmarkSection):
    own_splits = get_args(AdmireSplit)

    name: Literal["admire"]
    split: Annotated[list[AdmireSplit], BeforeValidator(as_list), Field(min_length=1)]
    modes: Annotated[list[AdmireMode], BeforeValidator(as_list), Field(min_length=1)]

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return admire_keys(splits, self.modes)


class BenchmarkSettings(Section):
    """The benchmarks that `benchmark=[...]` chose; the others are None."""

    idiolink: IdioLinkBenchmarkSettings | None = None
    semeval2022: SemEvalBenchmarkSettings | None = None
    epsilon: EpsilonBenchmarkSettings | None = None
    admire: AdmireBenchmarkSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_what_was_not_chosen(cls, value: Any) -> Any:
        """An experiment may set options of a benchmark that is left out; only a chosen one has its name."""
        if not isinstance(value, dict):
            return value
        chosen = {
            key: section
            for key, section in value.items()
            if key not in cls.model_fields or not isinstance(section, dict) or "name" in section
        }
        if not chosen:
            raise ValueError(f"choose one or more: benchmark=[{', '.join(cls.model_fields)}]")
        return chosen

    @property
    def sections(self) -> dict[str, BenchmarkSection]:
        """Name → section of those that were chosen."""
        return {name: own for name in type(self).model_fields if (own := getattr(self, name)) is not None}

    @property
    def names(self) -> list[str]:
        """Of those that were chosen."""
        return list(self.sections)

    def splits(self, name: str, wanted: Sequence[str]) -> list[str]:
        """Of the splits `wanted` those that this benchmark has, else its own; [] for one that is left out."""
        own = self.sections.get(name)
        if own is None:
            return []
        of_others = {s for other in self.sections.values() if other is not own for s in other.own_splits}
        found = [
            split
            for split in dict.fromkeys(wanted)
            if split in own.own_splits or (own.has_others and split not in of_others)
        ]
        return found or own.default_splits


def _is_benchmark(name: str) -> str:
    names = [repr(known) for known in BenchmarkSettings.model_fields]
    if repr(name) not in names:
        raise ValueError(f"must be one of {', '.join(names[:-1])} or {names[-1]}, got {name!r}")
    return name


BenchmarkNames = Annotated[
    list[Annotated[str, AfterValidator(_is_benchmark)]], BeforeValidator(as_list), Field(min_length=1)
]
