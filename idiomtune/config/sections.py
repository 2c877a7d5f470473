"""The sections of the configuration: types, ranges, and what must fit together in each."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt
from pydantic_core import PydanticKnownError

from idiomtune.plugins.benchmark import BenchmarkOptions
from idiomtune.plugins.dataset import DataSettings
from idiomtune.plugins.options import (
    ConfigSection,
    Count,
    CountFromZero,
    Dimensions,
    Factor,
    Names,
    NoEffect,
    Ratio,
    Weight,
    as_list,
)
from idiomtune.plugins.registry import benchmark_types, dataset_types


def _validate_choice(value: object) -> object:
    """The sections of the chosen benchmarks with their names, in the order of the declarations.

    An experiment may set options of a benchmark that is not chosen; such a section has no name.
    """
    if not isinstance(value, dict):
        return value
    types = benchmark_types()
    chosen = {
        name: (name, section)
        for name, section in sorted(value.items(), key=lambda item: [*types, item[0]].index(item[0]))
        if name not in types or not isinstance(section, dict) or "name" in section
    }
    if not chosen:
        raise ValueError(f"choose one or more: benchmark=[{', '.join(types)}]")
    return chosen


def _section(named: tuple[str, Any]) -> BenchmarkOptions:
    """A section as the class that its benchmark declares."""
    name, section = named
    if name not in benchmark_types():
        raise PydanticKnownError("extra_forbidden")
    return benchmark_types()[name].options.model_validate(section)


# The benchmarks that `benchmark=[...]` chose: name → options.
ChosenBenchmarks = Annotated[
    dict[str, Annotated[BenchmarkOptions, BeforeValidator(_section)]], BeforeValidator(_validate_choice)
]


def _is_benchmark(name: str) -> str:
    names = [repr(name) for name in benchmark_types()]
    if repr(name) not in names:
        raise ValueError(f"must be one of {', '.join(names[:-1])} or {names[-1]}, got {name!r}")
    return name


BenchmarkNames = Annotated[
    list[Annotated[str, AfterValidator(_is_benchmark)]], BeforeValidator(as_list), Field(min_length=1)
]


def _check_folders(data: DataSettings) -> DataSettings:
    """Refuse folders of data sets that nobody declares, and that `data=sample` replaces."""
    options = {dataset.setting.partition(".")[2] for dataset in dataset_types().values()}
    for name, value in (data.model_extra or {}).items():
        if name not in options:
            raise ValueError(f"there is no option data.{name}; data sets: {', '.join(sorted(options))}")
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise ValueError(f"data.{name}: must not be empty, but a folder or file, got {value!r}")
    for dataset in dataset_types().values():
        if data.sample and dataset.in_sample and data.data_path(dataset) is not None:
            raise ValueError(f"data=sample and {dataset.setting} exclude each other: give one of them")
    return data


CheckedData = Annotated[DataSettings, AfterValidator(_check_folders)]

# The sections `trainer`, `forgetting` and `eval`.

LearningRate = Annotated[float, Field(gt=0, le=1)]


class TrainerSettings(ConfigSection):
    batch_size: Count
    accumulation: Count
    max_epochs: Count
    max_steps: Count | None
    learning_rate: LearningRate
    head_learning_rate: LearningRate | None
    idiom_tokens_learning_rate: LearningRate | None
    freeze_encoder: bool
    only_idiom_tokens: bool
    weight_decay: Ratio
    no_decay: list[Literal["bias", "norm"]]
    schedule: Literal["linear", "cosine", "constant"]
    warmup_ratio: Ratio
    warmup_steps: CountFromZero | None
    clip_norm: Factor | None
    gradient_caching: bool
    activation_checkpointing: bool
    memory_check: Annotated[Literal["stop", "warn", "off"], NoEffect]
    matryoshka: Annotated[Dimensions, Field(min_length=1)] | None
    monitor: Names
    patience: Count | None
    min_delta: Weight
    max_empty_steps: Annotated[Count, NoEffect]
    keep_checkpoints: Annotated[Count, NoEffect]
    log_every: Annotated[Count, NoEffect]

    def problems(self) -> Iterator[str]:
        if self.freeze_encoder and self.only_idiom_tokens:
            yield "freeze_encoder=true and only_idiom_tokens=true exclude each other: give one of them"
        if self.batch_size % self.accumulation:
            yield f"batch_size={self.batch_size} is no multiple of accumulation={self.accumulation}"


class LoraSettings(ConfigSection):
    rank: Count | None
    alpha: Factor | None
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: Names | None


class ForgettingSettings(ConfigSection):
    weight_interpolation: Ratio
    distillation: Weight
    lora: LoraSettings

    def problems(self) -> Iterator[str]:
        if self.lora.rank is not None and self.weight_interpolation != 1.0:
            yield (
                f"lora.rank={self.lora.rank} and weight_interpolation={self.weight_interpolation} exclude "
                "each other: limit what adapters change by lora.rank and lora.alpha"
            )

    @property
    def moves_back(self) -> bool:
        """Whether the scored and saved weights differ from the trained ones."""
        return self.weight_interpolation != 1.0 or self.lora.rank is not None

    @property
    def is_on(self) -> bool:
        """Whether there is any remedy."""
        return self.moves_back or self.distillation > 0


class EvalSettings(ConfigSection):
    every: Literal["epoch", "end"] | Count
    benchmarks: Literal["monitored", "all"] | BenchmarkNames | None
    dimensions: Dimensions | None
    cache: Annotated[bool, NoEffect]
    per_query: Annotated[bool, NoEffect]
    predictions: Annotated[bool, NoEffect]


# The section `tracking`: where metrics go in addition to `metrics.jsonl`.


class WandbSettings(ConfigSection):
    name: Literal["wandb"]
    project: Annotated[str, Field(min_length=1)]
    entity: str | None
    group: str | None
    tags: Annotated[list[str], BeforeValidator(as_list)]
    mode: Literal["auto", "online", "offline"]
    log_model: Literal["best"] | None = None
    registry: str | None = None

    def problems(self) -> Iterator[str]:
        if self.registry is not None and self.log_model is None:
            yield f"registry={self.registry} links the model that log_model=best logs: add that"


class TensorBoardSettings(ConfigSection):
    name: Literal["tensorboard"]
    scores: Literal["main", "all"] = "main"


class TrackingSettings(ConfigSection):
    """The trackers that `tracking=[...]` chose; the others are None."""

    wandb: WandbSettings | None = None
    tensorboard: TensorBoardSettings | None = None

    def problems(self) -> Iterator[str]:
        for name in type(self).model_fields:
            if getattr(self, name) is not None and importlib.util.find_spec(name) is None:
                yield f"tracking={name} needs a package: pip install {name}, or leave it out"


# The options of a search over hyperparameters, `hydra.sweeper` in a sweep with Optuna.


class SearchSettings(ConfigSection):
    study: Annotated[str, Field(min_length=1)]
    storage: str | None
    n_trials: PositiveInt
    params: dict[str, Annotated[str, BeforeValidator(str)]]  # plain values (`true`, 3) as on the command line
    sampler: str
    sampler_options: dict[str, Any]
    seed: NonNegativeInt
    pruner: str
    pruner_options: dict[str, Any]

    def problems(self) -> Iterator[str]:
        if importlib.util.find_spec("optuna") is None:
            yield "a search needs the package optuna: pip install 'idiomtune[sweep]' (or optuna)"
