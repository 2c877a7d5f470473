"""Options of the objective `admire`, and what those of `aima` have in common with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.benchmarks.admire.keys import experts_keys
from train.data.names import ADMIRE_CV_SPLIT, AStitchFile, ExpertsMode, unseen_astitch
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
from train.objectives.shared import about_extra


class ClipSettings(Section):
    path: Text | None
    revision: Text | None
    trained_layers: CountFromZero


class RankLossSettings(Section):
    rank: Literal["pairwise", "listwise", "top1", "pairwise_printed", "top1_printed"]
    margin: Weight
    bounded: bool
    sum_weight: Weight
    gold_temperature: Temperature


class ExpertsLossSettings(RankLossSettings):
    rank_weight: Weight
    sense_weight: Weight
    meaning_weight: Weight
    temperature: Temperature

    @model_validator(mode="after")
    def _some_term_counts(self) -> Self:
        if not self.rank_weight + self.sense_weight + self.meaning_weight:
            raise ValueError("with rank_weight, sense_weight and meaning_weight all 0 there is no loss")
        return self


class AdmireObjectiveSettings(ObjectiveOptions):
    name: Literal["admire"]
    split: Literal["train", "train_cv"]
    astitch: Annotated[list[AStitchFile], BeforeValidator(as_list), Field(min_length=1)]
    usages_per_item: Count
    head: Literal["linear", "hidden"]
    hidden: Count
    cosine: Factor | None
    captions: bool
    literal: Literal["trained", "cosine"]
    sense_encoder: bool
    caption_words: Count
    separator: Annotated[str, Field(min_length=1)]
    sense_features: Literal["sentence", "usage"]
    mask: Text
    clip: ClipSettings
    loss: ExpertsLossSettings

    @property
    def trains_modules(self) -> bool:
        return True

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == ADMIRE_CV_SPLIT else None

    def score_keys(self, splits: Callable[[str], Sequence[str]]) -> list[str]:
        admire = splits("admire")
        return experts_keys([*admire, *unseen_astitch(self.astitch)], self.mode) if admire else []

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if section == "objective" and settings.data.extra:
            raise ValueError(about_extra(settings.data.extra))

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
