"""The sections `trainer`, `retain` and `eval`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from train.settings.base import Names, Ratio, Section
from train.settings.benchmarks import BenchmarkNames


class TrainerSettings(Section):
    batch_size: PositiveInt
    accumulation: PositiveInt
    max_epochs: PositiveInt
    max_steps: PositiveInt | None
    learning_rate: PositiveFloat
    modules_learning_rate: PositiveFloat | None
    freeze_encoder: bool
    weight_decay: NonNegativeFloat
    schedule: Literal["linear", "cosine", "constant"]
    warmup_ratio: Ratio
    warmup_steps: NonNegativeInt | None
    clip_norm: PositiveFloat | None
    gradient_caching: bool
    activation_checkpointing: bool
    monitor: Names
    patience: PositiveInt | None
    min_delta: NonNegativeFloat
    max_empty_steps: PositiveInt
    keep_checkpoints: PositiveInt
    log_every: PositiveInt

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Self:
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be cut into accumulation={self.accumulation} "
                "equal parts"
            )
        return self


class LoraSettings(Section):
    rank: PositiveInt | None
    alpha: PositiveFloat | None
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: Names | None


class RetainSettings(Section):
    interpolation: Ratio
    distillation: NonNegativeFloat
    lora: LoraSettings

    @model_validator(mode="after")
    def _adapters_are_saved_as_they_are(self) -> Self:
        if self.lora.rank is not None and self.interpolation != 1.0:
            raise ValueError(
                f"lora.rank={self.lora.rank} and interpolation={self.interpolation} exclude each other: the "
                "adapters in best/ would not be those of its model; how much adapters may change is "
                "lora.rank's and lora.alpha's to say"
            )
        return self

    @property
    def moves_back(self) -> bool:
        """Whether the model that is scored and saved has other weights than those that are trained."""
        return self.interpolation != 1.0 or self.lora.rank is not None

    @property
    def is_on(self) -> bool:
        """Whether there is any remedy."""
        return self.moves_back or self.distillation > 0


class EvalSettings(Section):
    every: Literal["epoch", "end"] | PositiveInt
    benchmarks: BenchmarkNames | None
    per_query: bool
    predictions: bool
