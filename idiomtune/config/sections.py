"""The sections of the configuration: types, ranges, and what must fit together in each."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
)
from pydantic_core import PydanticKnownError

from idiomtune.expressions import expression_words
from idiomtune.io.files import is_folder
from idiomtune.plugins.benchmark import BenchmarkOptions
from idiomtune.plugins.dataset import UserData
from idiomtune.plugins.models import model_names, model_values, near_model_names, needs_its_code
from idiomtune.plugins.options import (
    ConfigSection,
    Count,
    CountFromZero,
    Dimensions,
    Factor,
    Names,
    NoEffect,
    Ratio,
    Text,
    Weight,
    as_list,
)
from idiomtune.plugins.registry import benchmark_types, dataset_types


def _validate_choice(value: Any) -> Any:
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


# The section `data`: where the data lies, and which of it there is.


class DataSettings(UserData):
    """Options that are not declared here name where a data set lies, see :meth:`data_path`."""

    model_config = ConfigDict(extra="allow")

    sample: bool
    also: Annotated[list[Text], BeforeValidator(as_list)]
    glossary: Annotated[list[Text], BeforeValidator(as_list)]
    fold: CountFromZero | None
    folds: Annotated[int, Field(ge=2, le=2**31 - 1)]

    def problems(self) -> Iterator[str]:
        options = {dataset.setting.partition(".")[2] for dataset in dataset_types().values()}
        for name, value in (self.model_extra or {}).items():
            if name not in options:
                yield f"there is no option data.{name}; data sets: {', '.join(sorted(options))}"
            if value is not None and not (isinstance(value, str) and value.strip()):
                yield f"data.{name}: must not be empty, but a folder or file, got {value!r}"
        for dataset in dataset_types().values():
            if self.sample and dataset.in_sample and self.data_path(dataset.name) is not None:
                yield f"data=sample and {dataset.setting} exclude each other: give one of them"

    @property
    def user_data(self) -> UserData:
        """The user's data, without the folders of data sets."""
        return UserData(**{name: getattr(self, name) for name in UserData.model_fields})

    def data_path(self, dataset: str) -> str | None:
        """The folder or file that the user gave for a data set, or None."""
        option = dataset_types()[dataset].setting.partition(".")[2]
        path: str | None = (self.model_extra or {}).get(option)
        return path


# The section `model`.


def _is_a_template(prompt: str) -> str:
    if prompt.count("{query}") != 1 or prompt.count("{instruction}") > 1:
        raise ValueError(
            f"must hold {{query}} exactly once, and {{instruction}} at most once, got {prompt!r}"
        )
    return prompt


InstructionPrompt = Annotated[str, AfterValidator(_is_a_template)]


class ModelFacts(ConfigSection):
    """Facts about a model in `conf/model/`; docs/models.md has more.

    Attributes:
        licence: from its page; None if it states none.
        remote_code: whether Python code that comes with the checkpoint is `needed` to load it properly, or
            `offered` as an alternative to the library's class.
    """

    licence: Text | None = None
    remote_code: Literal["needed", "offered"] | None = None


class ModelSettings(ConfigSection):
    path: Text
    revision: Text | None
    pooling: Text | None
    include_prompt: bool | None
    bidirectional: bool | None
    span_from: Literal["last_hidden_state"] | None
    max_length: Count | None
    query_prompt: str | None
    document_prompt: str | None
    instruction_prompt: InstructionPrompt | None
    trust_remote_code: bool
    tokens_per_forward: Count | None
    idiom_tokens: str | list[str] | None
    idiom_tokens_start: Literal["pieces", "random"]
    replace_expressions: bool | None
    glossary: Annotated[list[Text], BeforeValidator(as_list)] | None
    glossary_form: Literal["append", "replace"] | None
    glossary_gate: bool | None
    glossary_dropout: Ratio
    about: ModelFacts | None

    @field_validator("path")
    @classmethod
    def _is_no_name(cls, value: str) -> str:
        if value in model_names() and not is_folder(Path(value)):
            raise ValueError(f"{value} is the name of a model, not a folder or Hub id: give model={value}")
        return value

    def problems(self) -> Iterator[str]:
        if self.about is not None and self.about.remote_code == "needed" and not self.trust_remote_code:
            yield f"{needs_its_code(self.path)} model.trust_remote_code=true runs it"

    @field_validator("idiom_tokens", mode="before")
    @classmethod
    def _expressions(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"must be train, a list of expressions, or a text file of them, got {value!r}")
        for expression in map(str, value):
            expression_words(expression)
        return value


def model_settings_of(name: str, **options: Any) -> ModelSettings:
    """The settings of a model: a name in `conf/model/`, a folder or a Hub id.

    Args:
        options: in place of those that it has there.

    Raises:
        ValueError: if there is none of that name, or it needs an option.
    """
    if name in model_names():
        return ModelSettings.model_validate(model_values(name) | options)
    if "/" not in name and not is_folder(Path(name)):
        hint = near_model_names(name) or f"the names of models are {', '.join(model_names())}"
        raise ValueError(f"{name} is not a folder, Hub id or name of a model: {hint}")
    return ModelSettings.model_validate(model_values("pretrained") | {"path": name} | options)


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
            yield (
                "freeze_encoder=true trains nothing of the encoder, only_idiom_tokens=true some of it: give "
                "one of them"
            )
        if self.batch_size % self.accumulation:
            yield (
                f"batch_size={self.batch_size} cannot be cut into accumulation={self.accumulation} "
                "equal parts"
            )


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
                "each other: the adapters in best/ would not be those of its model; limit what adapters "
                "change by lora.rank and lora.alpha"
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
                yield (
                    f"tracking={name} needs the package {name}, which is not installed: "
                    f"pip install 'idiomtune[{name}]' (or {name} only), or leave it out"
                )


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
