"""The sections `trainer`, `retain` and `eval`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from train.config.benchmarks import BenchmarkNames
from train.config.model import ModelSettings, named_model
from train.declarations.options import (
    Count,
    CountFromZero,
    Dimensions,
    Factor,
    Names,
    Ratio,
    Section,
    Text,
    Weight,
)

LearningRate = Annotated[float, Field(gt=0, le=1)]


class TrainerSettings(Section):
    batch_size: Count
    accumulation: Count
    max_epochs: Count
    max_steps: Count | None
    learning_rate: LearningRate
    modules_learning_rate: LearningRate | None
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
    dropout_masks: Literal["bytes", "torch"]
    memory_check: Literal["stop", "warn", "off"]
    matryoshka: Annotated[Dimensions, Field(min_length=1)] | None
    matryoshka_weights: list[Weight] | None
    monitor: Names
    patience: Count | None
    min_delta: Weight
    max_empty_steps: Count
    keep_checkpoints: Count
    log_every: Count

    def problems(self) -> Iterator[str]:
        if self.freeze_encoder and self.only_idiom_tokens:
            yield (
                "freeze_encoder=true trains nothing of the encoder, only_idiom_tokens=true some of it: give "
                "one of them"
            )
        weights, dimensions = self.matryoshka_weights, self.matryoshka
        if weights is not None and dimensions is None:
            yield "matryoshka_weights has nothing to weigh without matryoshka=[<dimensions>]"
        elif weights is not None and dimensions is not None and len(weights) != 1 + len(dimensions):
            yield (
                f"matryoshka_weights has {len(weights)} numbers, but needs {1 + len(dimensions)}: "
                f"the full embedding's, then one for each of matryoshka={dimensions}"
            )
        if weights is not None and not any(weights):
            yield "matryoshka_weights: with all weights 0 there is no loss"
        if self.batch_size % self.accumulation:
            yield (
                f"batch_size={self.batch_size} cannot be cut into accumulation={self.accumulation} "
                "equal parts"
            )


class LoraSettings(Section):
    rank: Count | None
    alpha: Factor | None
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: Names | None


class RetainSettings(Section):
    interpolation: Ratio
    distillation: Weight
    teacher: Text | None
    teacher_texts: Literal["plain", "all"]
    lora: LoraSettings

    def problems(self) -> Iterator[str]:
        if self.teacher is not None and not self.distillation:
            yield f"teacher={self.teacher} is followed with the weight distillation=, which is 0"
        if self.teacher is None and self.teacher_texts == "all":
            yield "teacher_texts=all is for a teacher: held to the base model, nothing is learnt"
        self.teacher_model  # noqa: B018  reported now if there is no such model
        if self.lora.rank is not None and self.interpolation != 1.0:
            yield (
                f"lora.rank={self.lora.rank} and interpolation={self.interpolation} exclude each other: the "
                "adapters in best/ would not be those of its model; limit what adapters change by lora.rank "
                "and lora.alpha"
            )

    @property
    def teacher_model(self) -> ModelSettings | None:
        """The settings of the teacher; None = the base model is followed."""
        return None if self.teacher is None else named_model(self.teacher)

    @property
    def moves_back(self) -> bool:
        """Whether the model that is scored and saved has other weights than those that are trained."""
        return self.interpolation != 1.0 or self.lora.rank is not None

    @property
    def is_on(self) -> bool:
        """Whether there is any remedy."""
        return self.moves_back or self.distillation > 0


class EvalSettings(Section):
    every: Literal["epoch", "end"] | Count
    benchmarks: Literal["monitored", "all"] | BenchmarkNames | None
    dimensions: Dimensions | None
    cache: bool
    per_query: bool
    predictions: bool
