"""Options of the objective for a user's own data."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.declarations.objective import ObjectiveOptions
from train.declarations.options import Count, Factor, Section, Temperature, Text, Weight, as_list, or_empty
from train.declarations.own_data import NO_DATA
from train.objectives.options import InfoNCESettings, TripletLossSettings, check_query_weights

OwnMode = Literal["span", "sentence", "masked_span", "masked_sentence"]
OwnLoss = Literal["infonce", "cosent", "cosine", "triplet"]


class GradedSettings(Section):
    temperature: Temperature
    low: float
    high: float

    @model_validator(mode="after")
    def _some_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} must be less than high={self.high:g}")
        return self


class OwnSettings(ObjectiveOptions):
    name: Literal["own"]
    loss: OwnLoss | None
    query_mode: Annotated[list[OwnMode], BeforeValidator(as_list), Field(min_length=1)] | None
    query_weights: list[Factor] | None
    document_mode: Annotated[list[OwnMode], BeforeValidator(as_list), Field(min_length=1)] | None
    mask: Text
    instruction: Text | None
    num_positives: Count | None
    num_negatives: Count | None
    groups_per_batch: Count | None
    drop_last: bool
    positive_weights: Annotated[dict[Text, Weight], BeforeValidator(or_empty)]
    infonce: InfoNCESettings
    graded: GradedSettings
    order: Literal["file", "shuffled"]
    per_label: Count
    triplet: TripletLossSettings

    def check_with(self, settings: Any, section: str = "objective") -> None:
        batch_size = settings.trainer.batch_size
        if self.groups_per_batch is not None and batch_size % self.groups_per_batch:
            raise ValueError(
                f"{section}.groups_per_batch={self.groups_per_batch} groups cannot have equally many of "
                f"trainer.batch_size={batch_size} anchors"
            )
        if settings.data.train is None:
            raise ValueError(NO_DATA)
        if section == "objective" and settings.data.extra is not None:
            raise ValueError(f"data.extra={settings.data.extra} adds to IdioLink's data: leave it out")

    def check_files(self, settings: Any) -> None:
        from train.data.own.load import check_heads  # NumPy takes a moment

        check_heads(settings.data.own)

    @model_validator(mode="after")
    def _one_weight_a_query_mode(self) -> Self:
        check_query_weights(self.query_weights, self.query_mode or ["span"])
        return self

    @model_validator(mode="after")
    def _whole_batches_of_any_size(self) -> Self:
        if self.drop_last and self.groups_per_batch is not None:
            raise ValueError(
                "drop_last=true goes with shuffled batches only: with groups_per_batch any batch of an "
                "epoch may be smaller than the others"
            )
        return self
