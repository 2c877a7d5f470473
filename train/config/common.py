"""What training and evaluation have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import model_validator

from train.config.benchmarks import BenchmarkSettings
from train.config.data import DataSettings
from train.config.model import ModelSettings
from train.declarations.dimensions import at_dimension
from train.declarations.options import Names, Section, Text
from train.declarations.registry import benchmark_of, load_extensions

ABOUT_FOLDS = (
    "cross-validation needs data.fold=<number>, split=cv and, in training, objective.split=cv together: "
    "add, after +experiment=, +protocol=cross_validation data.fold=0,1,2,3 (with -m). Over AdMIRe's "
    "compounds both splits are train_cv: +protocol=cross_validation_admire data.fold=0,1,2,3,4"
)


class Common(Section):
    extensions: list[Text]
    model: ModelSettings
    data: DataSettings
    benchmark: BenchmarkSettings
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    split: Names | None
    scores: Literal["main", "all"]

    @model_validator(mode="before")
    @classmethod
    def _extensions_come_first(cls, value: Any) -> Any:
        """So that all other sections can name what they declare."""
        modules = value.get("extensions", []) if isinstance(value, dict) else []
        if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
            load_extensions(modules)
        return value

    def problems(self) -> Iterator[str]:
        for split in self.split or []:
            if not any(split in self.splits(name) for name in self.benchmark.names):
                yield (
                    f"split={split}: none of the benchmarks {', '.join(self.benchmark.names)} has that split"
                )
        given_by: dict[str, str] = {}
        for name, options in self.benchmark.sections.items():
            for key in options.score_keys(self.splits(name)):
                if given_by.setdefault(key, name) != name:
                    yield (f"benchmark: {given_by[key]} and {name} both give the score {key!r}: rename one")
        if (self.data.fold is not None) != bool(self.scored_folds):
            yield ABOUT_FOLDS

    @property
    def scored_folds(self) -> list[str]:
        """The splits to score that belong to a fold."""
        sections = self.benchmark.sections.items()
        return [options.fold_split for name, options in sections if options.fold_split in self.splits(name)]

    def check_named(self, option: str, benchmarks: Sequence[str] | None) -> None:
        """Raises ValueError for a name that `benchmark=[...]` leaves out."""
        for name in benchmarks or []:
            if name not in self.benchmark.names:
                raise ValueError(
                    f"{option}: {name} is not among benchmark=[{', '.join(self.benchmark.names)}]"
                )

    def splits(self, benchmark: str) -> list[str]:
        """The splits that a benchmark is scored on: those of `split=` that it has, else its options'."""
        return self.benchmark.splits(benchmark, self.split or [])

    @property
    def cut_dimensions(self) -> list[int]:
        """To how many leading dimensions embeddings are cut, to be scored so too."""
        return []

    def score_keys(self, benchmarks: Sequence[str] | None) -> list[str]:
        """Every score key that these settings can give."""
        keys = [
            key
            for name, options in self.benchmark.sections.items()
            if benchmarks is None or name in benchmarks
            for key in options.score_keys(self.splits(name))
        ]
        varying = [key for key in keys if not benchmark_of(key).is_constant(key)]
        return keys + [at_dimension(key, n) for n in self.cut_dimensions for key in varying]
