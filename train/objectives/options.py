"""Options of the objectives: one class each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.data.names import (
    CV_SPLIT,
    TrainDocumentMode,
    TrainQueryMode,
)
from train.declarations.objective import ObjectiveOptions
from train.declarations.options import (
    Count,
    CountFromZero,
    Factor,
    Section,
    Temperature,
    Text,
    Weight,
    as_list,
)


class InfoNCESettings(Section):
    temperature: Temperature
    denominator: Literal["negatives", "own_positive", "all_positives"]
    in_batch: Literal["none", "positives", "all"]
    false_negatives: Literal["keep", "mask", "positive"]
    hard_weight: Weight
    soft_weight: Weight
    positives: Literal["mean", "hardest"]


def check_query_weights(weights: Sequence[float] | None, modes: Sequence[str]) -> None:
    """Raises ValueError unless there is a weight for each mode, or none at all."""
    if weights is not None and len(weights) != len(modes):
        raise ValueError(f"query_weights has {len(weights)} numbers for the {len(modes)} modes of query_mode")


class PositiveWeights(Section):
    idiomatic: Weight
    simplification: Weight
    sense: Weight


class IdioLinkObjectiveSettings(ObjectiveOptions):
    name: Literal["idiolink"]
    split: Text
    query_mode: Annotated[list[TrainQueryMode], BeforeValidator(as_list), Field(min_length=1)]
    query_weights: list[Factor] | None
    document_mode: Annotated[list[TrainDocumentMode], BeforeValidator(as_list), Field(min_length=1)]
    mask: Text
    tuples: Literal["released", "drawn", "batch"]
    num_positives: Count
    num_hard: CountFromZero
    num_soft: CountFromZero
    redraw: bool
    documents_as_queries: bool
    idioms_per_batch: Count | None
    drop_last: bool
    positive_weights: PositiveWeights
    plain_usages: list[Literal["literal", "idiomatic", "simplification", "sense"]]
    loss: InfoNCESettings

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == CV_SPLIT else None

    def check_with(self, settings: Any, section: str = "objective") -> None:
        trainer, idioms, parts = settings.trainer, self.idioms_per_batch, settings.trainer.accumulation
        if idioms is not None and trainer.batch_size % idioms:
            raise ValueError(
                f"{section}.idioms_per_batch={idioms} idioms cannot have equally many of "
                f"trainer.batch_size={trainer.batch_size} anchors"
            )
        if self.tuples == "batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of {section}.idioms_per_batch={idioms} idioms "
                "into parts without two whole idioms, but tuples=batch takes negatives from the same part: "
                "choose an accumulation that leaves two idioms or more in each"
            )
        if settings.data.extra and (self.tuples == "released" or not self.documents_as_queries):
            raise ValueError(about_extra(settings.data.extra))
        if self.fold_split and self.tuples == "released":
            raise ValueError("objective.tuples=released are of the train split, not of a fold's idioms")

    @model_validator(mode="after")
    def _one_weight_a_query_mode(self) -> Self:
        check_query_weights(self.query_weights, self.query_mode)
        return self

    @model_validator(mode="after")
    def _batch_is_all_there_is(self) -> Self:
        if self.tuples == "batch" and (self.loss.in_batch, self.loss.false_negatives) != ("all", "positive"):
            raise ValueError(
                "tuples=batch takes positives and negatives from the batch alone, which needs "
                "loss.in_batch=all and loss.false_negatives=positive"
            )
        return self

    @model_validator(mode="after")
    def _some_positive_counts(self) -> Self:
        if not any(self.positive_weights.model_dump().values()):
            raise ValueError("positive_weights: with all weights 0 idiomatic anchors would have no loss")
        return self

    @model_validator(mode="after")
    def _balanced_steps_are_of_any_size(self) -> Self:
        if self.drop_last and self.idioms_per_batch is not None:
            raise ValueError(
                "drop_last=true goes with shuffled batches only: with idioms_per_batch any batch of an "
                "epoch may be smaller than the others"
            )
        return self

    @model_validator(mode="after")
    def _released_are_fixed(self) -> Self:
        if self.tuples == "released":
            for field in ("redraw", "documents_as_queries"):
                if getattr(self, field):
                    raise ValueError(f"{field}=true needs tuples=drawn: the released ones are fixed")
        return self


class TripletLossSettings(Section):
    margin: Factor
    mining_margin: Weight
    mining_distance: Literal["cosine", "euclidean"]
    triplets: Literal["all", "hard", "semihard", "easy"]
    scope: Literal["all", "within"]
    triplet_weight: Weight
    property_weight: Weight
    correct_weight: Weight


def about_extra(extra: str) -> str:
    return (
        f"data.extra={extra} adds sentences that serve as anchors: it needs the objective "
        "idiolink, documents_as_queries=true, and tuples that are not the released ones"
    )


class AdaptiveTripletSettings(ObjectiveOptions):
    name: Literal["adaptive_triplet"]
    order: Literal["file", "shuffled"]
    whole_groups: bool
    groups: Literal["all", "usable"]
    groups_per_expression: Count | None
    one_shot: bool
    loss: TripletLossSettings

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if section == "objective" and settings.data.extra:
            raise ValueError(about_extra(settings.data.extra))

    @model_validator(mode="after")
    def _groups_are_cut_in_the_files_order(self) -> Self:
        if self.order == "shuffled" and not self.whole_groups:
            raise ValueError("whole_groups=false cuts the file's order into batches, which needs order=file")
        return self

    @model_validator(mode="after")
    def _drawn_groups_have_no_order(self) -> Self:
        if self.order == "file" and self.groups_per_expression is not None:
            raise ValueError(
                f"groups_per_expression={self.groups_per_expression} takes other groups in each epoch, "
                "which needs order=shuffled"
            )
        return self


class JointSettings(ObjectiveOptions):
    """A mixture of two known parts, whose options stand under their names."""

    name: Literal["joint"]
    proportions: Annotated[dict[str, Factor], Field(min_length=1)]
    idiolink: IdioLinkObjectiveSettings
    adaptive_triplet: AdaptiveTripletSettings

    @property
    def fold_split(self) -> str | None:
        return self.idiolink.fold_split

    def check_with(self, settings: Any, section: str = "objective") -> None:
        for part in (self.idiolink, self.adaptive_triplet):
            part.check_with(settings, f"{section}.{part.name}")

    @model_validator(mode="after")
    def _known_parts(self) -> Self:
        for name in self.proportions:
            if name not in ("idiolink", "adaptive_triplet"):
                raise ValueError(f"proportions: {name!r} is not one of idiolink, adaptive_triplet")
        return self
