"""Options of the objective `aima`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.benchmarks.admire.keys import experts_keys
from train.data.names import ADMIRE_CV_SPLIT, AStitchFile, unseen_astitch
from train.declarations.objective import ObjectiveOptions, ObjectiveType
from train.declarations.options import Count, Section, Text, as_list
from train.objectives.admire_options import AdmireObjectiveSettings, ClipSettings, RankLossSettings


class SenseEncoderSettings(Section):
    path: Text
    revision: Text | None
    stage: Literal["first", "beside"]
    epochs: Count


class CaptionSettings(Section):
    words: Count
    summariser: Text | None
    revision: Text | None


class AimaSettings(ObjectiveOptions):
    name: Literal["aima"]
    split: Literal["train", "train_cv"]
    astitch: Annotated[list[AStitchFile], BeforeValidator(as_list), Field(min_length=1)]
    hidden: Count
    ablation: Literal["clip_cosine", "no_sense_encoder"] | None
    sense_encoder: SenseEncoderSettings
    captions: CaptionSettings
    separator: Annotated[str, Field(min_length=1)]
    clip: ClipSettings
    loss: RankLossSettings

    @property
    def trains_modules(self) -> bool:
        return True

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == ADMIRE_CV_SPLIT else None

    def score_keys(self, splits: Callable[[str], Sequence[str]]) -> list[str]:
        admire = splits("admire")
        return experts_keys([*admire, *unseen_astitch(self.astitch)], "experts_image") if admire else []

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if section == "objective" and settings.data.extra:
            raise ValueError(
                "data.extra adds sentences to idiolink's tuples, which the objective aima has not"
            )
        epochs = self.sense_encoder.epochs
        if self.sense_encoder.stage == "first" and epochs > settings.trainer.max_epochs:
            raise ValueError(
                f"{section}.sense_encoder.epochs={epochs} are more than trainer.max_epochs="
                f"{settings.trainer.max_epochs}: no step would be left for the experts"
            )

    @model_validator(mode="after")
    def _clip_is_named(self) -> Self:
        if self.clip.path is None:
            raise ValueError("clip.path=null: without CLIP there is no such system; see objective=admire")
        return self


_TRAINED_ON = ("admire", "astitch")
_CARD = "`experts/` holds what was trained beside the encoder for AdMIRe; `train.evaluate` scores it too."
_BUILD = "train.factory.experts:admire_objective", "train.factory.aima:aima_objective"

DECLARED = [
    ObjectiveType("admire", AdmireObjectiveSettings, _BUILD[0], lambda _: _TRAINED_ON, _CARD),
    ObjectiveType("aima", AimaSettings, _BUILD[1], lambda _: _TRAINED_ON, _CARD),
]
