"""AdMIRe's two systems: ours (`admire`) and AIMA as its paper prints it (`aima`). Declared here.

They come in as a user's own objective would, and nothing else imports this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from idiomtune.benchmarks.admire import experts_keys
from idiomtune.data.names import ADMIRE_CV_SPLIT, AStitchFile, ExpertsMode, unseen_astitch
from idiomtune.declarations.objective import ObjectiveOptions, ObjectiveType
from idiomtune.declarations.options import (
    Count,
    CountFromZero,
    Factor,
    Section,
    Temperature,
    Text,
    Weight,
    as_list,
)

FOLDER = "experts"  # of the trained scorer, in a checkpoint and in best/
FILES = (f"{FOLDER}/experts.json", f"{FOLDER}/experts.safetensors")


class Clip(Section):
    path: Text | None
    revision: Text | None
    trained_layers: CountFromZero


class SenseModel(Section):
    path: Text
    revision: Text | None
    stage: Literal["first", "beside"]
    epochs: Count


class CaptionOptions(Section):
    words: Count
    summariser: Text | None
    revision: Text | None


class ScorerOptions(Section):
    """What a scorer is made of, and all that a saved one needs; `conf/objective/` explains each option.

    Attributes:
        astitch: None only where an earlier version saved a scorer without it.
    """

    hidden: Count
    separator: Annotated[str, Field(min_length=1)] | None
    astitch: Annotated[list[AStitchFile] | None, BeforeValidator(as_list)]
    clip: Clip

    @property
    def mode(self) -> ExpertsMode:
        """What its scores are called."""
        return "experts_text" if self.clip.path is None else "experts_image"


class ExpertsOptions(ScorerOptions):
    head: Literal["linear", "hidden"]
    cosine: Factor | None
    captions: bool
    literal: Literal["trained", "cosine"]
    sense_encoder: bool
    caption_words: Count
    sense_features: Literal["sentence", "usage"]
    mask: Text | None

    def problems(self) -> Iterator[str]:
        if self.clip.path is None and not self.captions:
            yield ("captions=false leaves nothing to rank by without images: name a CLIP model, clip.path=")


class PrintedOptions(ScorerOptions):
    ablation: Literal["clip_cosine", "no_sense_encoder"] | None
    sense_encoder: SenseModel
    captions: CaptionOptions

    def problems(self) -> Iterator[str]:
        if self.clip.path is None:
            yield "clip.path=null: AIMA needs CLIP; objective=admire works without it"


class RankLoss(Section):
    rank: Literal["pairwise", "listwise", "top1", "pairwise_printed", "top1_printed"]
    margin: Weight
    bounded: bool
    sum_weight: Weight
    gold_temperature: Temperature


class WeightedLoss(RankLoss):
    rank_weight: Weight
    sense_weight: Weight
    meaning_weight: Weight
    temperature: Temperature

    def problems(self) -> Iterator[str]:
        if not self.rank_weight + self.sense_weight + self.meaning_weight:
            yield "with rank_weight, sense_weight and meaning_weight all 0 there is no loss"


class TrainedScorer(ObjectiveOptions, ScorerOptions):
    """The options that both objectives add to those of their scorer."""

    split: Literal["train", "train_cv"]
    astitch: Annotated[list[AStitchFile], BeforeValidator(as_list), Field(min_length=1)]
    loss: RankLoss

    @property
    def trains_modules(self) -> bool:
        return True

    @property
    def special_tokens(self) -> Sequence[str]:
        return ["separator", "mask"] if getattr(self, "sense_features", "") == "usage" else ["separator"]

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == ADMIRE_CV_SPLIT else None

    def score_keys(self, splits: Callable[[str], Sequence[str]]) -> list[str]:
        admire = splits("admire")
        return experts_keys([*admire, *unseen_astitch(self.astitch)], self.mode) if admire else []


class AdmireOptions(TrainedScorer, ExpertsOptions):
    name: Literal["admire"]
    usages_per_item: Count
    loss: WeightedLoss


class AimaOptions(TrainedScorer, PrintedOptions):
    name: Literal["aima"]

    def check_with(self, settings: Any, section: str = "objective") -> None:
        super().check_with(settings, section)
        epochs, longest = self.sense_encoder.epochs, settings.trainer.max_epochs
        if self.sense_encoder.stage == "first" and epochs > longest:
            raise ValueError(
                f"{section}.sense_encoder.epochs={epochs} is more than trainer.max_epochs={longest}: no step "
                "would be left for the experts"
            )


def _declared(name: str, options: type[TrainedScorer]) -> ObjectiveType:
    return ObjectiveType(
        name,
        options,
        f"idiomtune.admire.objectives:{name.capitalize()}Objective",
        datasets=lambda _: ("admire", "astitch"),
        card=f"`{FOLDER}/` was trained with the encoder for AdMIRe; `idiomtune evaluate` scores it too.",
        saved=FILES,
        load="idiomtune.admire.scorer:load",
    )


DECLARED = [_declared("admire", AdmireOptions), _declared("aima", AimaOptions)]
