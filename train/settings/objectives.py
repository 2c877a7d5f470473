"""The section `objective`: one class an objective, told apart by its `name`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from train.scorekeys import ExpertsMode, TrainDocumentMode, TrainQueryMode
from train.settings.base import Section, as_list


class InfoNCESettings(Section):
    temperature: PositiveFloat
    denominator: Literal["negatives", "own_positive", "all_positives"]
    in_batch: Literal["none", "positives", "all"]
    false_negatives: Literal["keep", "mask", "positive"]
    hard_weight: NonNegativeFloat
    soft_weight: NonNegativeFloat
    positives: Literal["mean", "hardest"]


class PositiveWeights(Section):
    idiomatic: NonNegativeFloat
    simplification: NonNegativeFloat
    sense: NonNegativeFloat


class IdioLinkObjectiveSettings(Section):
    name: Literal["idiolink"]
    split: str
    query_mode: Annotated[list[TrainQueryMode], BeforeValidator(as_list), Field(min_length=1)]
    query_weights: list[PositiveFloat] | None
    document_mode: Annotated[list[TrainDocumentMode], BeforeValidator(as_list), Field(min_length=1)]
    mask: Annotated[str, Field(min_length=1)]
    tuples: Literal["released", "drawn", "batch"]
    num_positives: PositiveInt
    num_hard: NonNegativeInt
    num_soft: NonNegativeInt
    redraw: bool
    documents_as_queries: bool
    idioms_per_batch: PositiveInt | None
    drop_last: bool
    positive_weights: PositiveWeights
    plain_usages: list[Literal["literal", "idiomatic", "simplification", "sense"]]
    loss: InfoNCESettings

    @model_validator(mode="after")
    def _one_weight_a_query_mode(self) -> Self:
        if self.query_weights is not None and len(self.query_weights) != len(self.query_mode):
            raise ValueError(
                f"query_weights has {len(self.query_weights)} numbers for the {len(self.query_mode)} "
                "modes of query_mode"
            )
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
    margin: PositiveFloat
    mining_margin: NonNegativeFloat
    mining_distance: Literal["cosine", "euclidean"]
    triplets: Literal["all", "hard", "semihard", "easy"]
    scope: Literal["all", "within"]
    triplet_weight: NonNegativeFloat
    property_weight: NonNegativeFloat

    @model_validator(mode="after")
    def _some_term_counts(self) -> Self:
        if not self.triplet_weight and not self.property_weight:
            raise ValueError("with triplet_weight=0 and property_weight=0 there is no loss")
        return self


class AdaptiveTripletSettings(Section):
    name: Literal["adaptive_triplet"]
    order: Literal["file", "shuffled"]
    groups: Literal["all", "usable"]
    one_shot: bool
    loss: TripletLossSettings


class JointSettings(Section):
    name: Literal["joint"]
    proportions: Annotated[dict[str, PositiveFloat], Field(min_length=1)]
    idiolink: IdioLinkObjectiveSettings
    adaptive_triplet: AdaptiveTripletSettings

    @model_validator(mode="after")
    def _known_parts(self) -> Self:
        for name in self.proportions:
            if name not in ("idiolink", "adaptive_triplet"):
                raise ValueError(f"proportions: {name!r} is not one of idiolink, adaptive_triplet")
        return self


class ClipSettings(Section):
    path: str | None
    revision: str | None
    trained_layers: NonNegativeInt


class ExpertsLossSettings(Section):
    rank: Literal["pairwise", "listwise", "top1"]
    margin: NonNegativeFloat
    gold_temperature: PositiveFloat
    rank_weight: NonNegativeFloat
    sense_weight: NonNegativeFloat
    meaning_weight: NonNegativeFloat
    temperature: PositiveFloat

    @model_validator(mode="after")
    def _some_term_counts(self) -> Self:
        if not self.rank_weight + self.sense_weight + self.meaning_weight:
            raise ValueError("with rank_weight, sense_weight and meaning_weight all 0 there is no loss")
        return self


AStitchFile = Literal["train_zero_shot", "train_one_shot", "train_few_shot"]


class AdmireObjectiveSettings(Section):
    name: Literal["admire"]
    split: Literal["train", "train_cv"]
    astitch: Annotated[list[AStitchFile], BeforeValidator(as_list), Field(min_length=1)]
    usages_per_item: PositiveInt
    head: Literal["linear", "hidden"]
    hidden: PositiveInt
    cosine: PositiveFloat | None
    captions: bool
    literal: Literal["trained", "cosine"]
    sense_encoder: bool
    caption_words: PositiveInt
    separator: Annotated[str, Field(min_length=1)]
    clip: ClipSettings
    loss: ExpertsLossSettings

    @property
    def mode(self) -> ExpertsMode:
        """What the experts' scores are called."""
        return "experts_text" if self.clip.path is None else "experts_image"

    @model_validator(mode="after")
    def _something_is_seen(self) -> Self:
        if self.clip.path is None and not self.captions:
            raise ValueError(
                "captions=false leaves nothing to rank by without images: name a CLIP model, clip.path="
            )
        return self


ObjectiveSettings = Annotated[
    IdioLinkObjectiveSettings | AdaptiveTripletSettings | AdmireObjectiveSettings | JointSettings,
    Field(discriminator="name"),
]
