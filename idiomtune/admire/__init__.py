"""Declares the options of AdMIRe's scorer: ours, or AIMA's as printed in its paper (`as_published`).

They come in as a user's own objective would, and nothing else imports this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from idiomtune.benchmarks.admire import experts_scores
from idiomtune.data.names import ADMIRE_CV_SPLIT, AStitchFile, ExpertsMode, unseen_astitch
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions, ObjectiveType
from idiomtune.plugins.options import (
    ConfigSection,
    Count,
    CountFromZero,
    Factor,
    Temperature,
    Text,
    Weight,
    as_list,
)
from idiomtune.plugins.score import Score

FOLDER = "experts"  # of the trained scorer, in a checkpoint and in best/
FILES = (f"{FOLDER}/experts.json", f"{FOLDER}/experts.safetensors")


class PretrainedOptions(ConfigSection):
    path: Text | None
    revision: Text | None


class ClipOptions(PretrainedOptions):
    trained_layers: CountFromZero


class SenseEncoderOptions(PretrainedOptions):
    stage: Literal["first", "beside"]
    epochs: Count


class CaptionOptions(ConfigSection):
    words: Count
    summariser: Text | None
    revision: Text | None


class LossOptions(ConfigSection):
    rank: Literal["pairwise", "listwise", "top1", "pairwise_printed", "top1_printed"]
    margin: Weight
    bounded: bool
    sum_weight: Weight
    gold_temperature: Temperature
    rank_weight: Weight
    sense_weight: Weight
    meaning_weight: Weight
    temperature: Temperature

    def problems(self) -> Iterator[str]:
        if not self.rank_weight + self.sense_weight + self.meaning_weight:
            yield "with rank_weight, sense_weight and meaning_weight all 0 there is no loss"


class AdmireOptions(ObjectiveOptions):
    """`conf/objective/admire.yaml` explains each option. All of them are saved with a scorer."""

    name: Literal["admire"]
    as_published: bool
    split: Literal["train", "train_cv"]
    astitch: Annotated[list[AStitchFile], BeforeValidator(as_list), Field(min_length=1)]
    usages_per_item: Count
    head: Literal["linear", "hidden"]
    hidden: Count
    cosine: Factor | None
    ablation: Literal["clip_cosine", "no_sense_encoder"] | None
    separator: Annotated[str, Field(min_length=1)] | None
    sense_features: Literal["sentence", "usage"]
    mask: Text | None
    captions: CaptionOptions
    clip: ClipOptions
    sense_encoder: SenseEncoderOptions
    loss: LossOptions

    def problems(self) -> Iterator[str]:
        if self.clip.path is None and (self.as_published or self.ablation == "clip_cosine"):
            option = "as_published=true" if self.as_published else "ablation=clip_cosine"
            yield f"clip.path=null: {option} needs a CLIP model"
        if self.trains_sense_encoder and self.sense_encoder.path is None:
            yield "sense_encoder.path=null: as_published=true needs a BERT, or ablation=no_sense_encoder"

    @property
    def trains_sense_encoder(self) -> bool:
        """Whether the sense vector is that of a model of its own."""
        return self.as_published and self.ablation != "no_sense_encoder"

    @property
    def mode(self) -> ExpertsMode:
        """The mode in the score keys."""
        return "experts_text" if self.clip.path is None else "experts_image"

    @property
    def trains_head(self) -> bool:
        return True

    @property
    def special_tokens(self) -> Sequence[str]:
        return ["separator", "mask"] if self.sense_features == "usage" else ["separator"]

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == ADMIRE_CV_SPLIT else None

    def possible_scores(self, splits: Callable[[str], Sequence[str]]) -> list[Score]:
        admire = splits("admire")
        return experts_scores([*admire, *unseen_astitch(self.astitch)], self.mode) if admire else []

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        super().check_with(inputs, section)
        epochs, longest = self.sense_encoder.epochs, inputs.max_epochs
        if self.as_published and self.sense_encoder.stage == "first" and epochs > longest:
            raise ValueError(
                f"{section}.sense_encoder.epochs={epochs} is more than trainer.max_epochs={longest}: no step "
                "would be left for the experts"
            )


DECLARED = [
    ObjectiveType(
        "admire",
        AdmireOptions,
        "idiomtune.admire.objective:build",
        datasets=lambda _: ("admire", "astitch"),
        card=f"`{FOLDER}/` was trained with the encoder for AdMIRe; `idiomtune evaluate` scores it too.",
        saved=FILES,
        load="idiomtune.admire.scorer:load",
    )
]
