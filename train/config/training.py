"""All settings of a training run, and what must fit together in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self, get_args

from pydantic import Field, model_validator

from train.config.base import Text
from train.config.common import ABOUT_FOLDS, Common
from train.config.objectives import (
    AdmireObjectiveSettings,
    IdioLinkObjectiveSettings,
    JointSettings,
    ObjectiveSettings,
)
from train.config.push import HubSettings
from train.config.tracking import TrackingSettings
from train.config.trainer import EvalSettings, RetainSettings, TrainerSettings
from train.scores import (
    ADMIRE_CV_SPLIT,
    CV_SPLIT,
    AStitchSplit,
    experts_keys,
    no_such_score,
    smaller_is_better,
)


class TrainSettings(Common):
    objective: ObjectiveSettings
    trainer: TrainerSettings
    retain: RetainSettings
    eval: EvalSettings
    hub: HubSettings
    tracking: TrackingSettings = TrackingSettings()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]  # what torch and numpy take
    run_dir: Text | None
    resume: Text | None

    @property
    def idiolink_objective(self) -> IdioLinkObjectiveSettings | None:
        """The objective `idiolink`, alone or as a part of a joint one."""
        own = self.objective.idiolink if isinstance(self.objective, JointSettings) else self.objective
        return own if isinstance(own, IdioLinkObjectiveSettings) else None

    @property
    def admire_objective(self) -> AdmireObjectiveSettings | None:
        """The objective `admire`."""
        return self.objective if isinstance(self.objective, AdmireObjectiveSettings) else None

    def score_keys(self, benchmarks: Sequence[str] | None) -> list[str]:
        """Every score key that these settings can give, those of what is trained beside the encoder too."""
        keys, own = super().score_keys(benchmarks), self.admire_objective
        is_scored = "admire" in self.benchmark.names and (benchmarks is None or "admire" in benchmarks)
        if own is not None and is_scored:
            keys += experts_keys([*self.splits("admire"), *get_args(AStitchSplit)], own.mode)
        return keys

    @model_validator(mode="after")
    def _something_is_trained(self) -> Self:
        if self.trainer.freeze_encoder and self.admire_objective is None:
            raise ValueError(
                f"trainer.freeze_encoder=true: the objective {self.objective.name} trains nothing beside the "
                "encoder"
            )
        if self.trainer.freeze_encoder and (self.retain.is_on or self.model.idiom_tokens is not None):
            raise ValueError(
                "trainer.freeze_encoder=true leaves the encoder as it is: retain.* and model.idiom_tokens "
                "have nothing to do there; leave them out"
            )
        return self

    @model_validator(mode="after")
    def _sample_is_pushed_knowingly(self) -> Self:
        if self.hub.push is not None and self.data.sample and not self.hub.allow_sample:
            raise ValueError(
                f"hub.push={self.hub.push} with data=sample publishes a model that was trained to see that "
                "everything works: if you mean it, add hub.allow_sample=true"
            )
        return self

    @model_validator(mode="after")
    def _new_tokens_are_trained(self) -> Self:
        if self.retain.lora.rank is not None and self.model.idiom_tokens is not None:
            raise ValueError(
                "retain.lora.rank and model.idiom_tokens exclude each other: adapters leave the words' "
                "vectors as they are, so that the new tokens would learn nothing"
            )
        return self

    @model_validator(mode="after")
    def _tokens_alone_forget_nothing(self) -> Self:
        if self.trainer.only_idiom_tokens and self.retain.is_on:
            raise ValueError(
                "trainer.only_idiom_tokens=true leaves everything else as it is: retain.* has nothing to do "
                "there; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _whole_runs_of_idioms(self) -> Self:
        own = self.idiolink_objective
        idioms = own.idioms_per_batch if own else None
        section = "objective" if own is self.objective else "objective.idiolink"
        if idioms is not None and self.trainer.batch_size % idioms:
            raise ValueError(
                f"{section}.idioms_per_batch={idioms} idioms cannot have equally many of "
                f"trainer.batch_size={self.trainer.batch_size} anchors"
            )
        parts = self.trainer.accumulation
        if own and own.tuples == "batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of {section}.idioms_per_batch={idioms} idioms so "
                "that a part has no two whole ones, and tuples=batch finds negatives in a part alone: "
                "choose an accumulation that leaves two idioms or more"
            )
        return self

    @model_validator(mode="after")
    def _external_data_is_trained_on(self) -> Self:
        own = self.idiolink_objective
        if self.data.extra and (own is None or own.tuples == "released" or not own.documents_as_queries):
            raise ValueError(
                f"data.extra={self.data.extra} adds sentences that serve as anchors: it needs the objective "
                "idiolink, documents_as_queries=true, and tuples that are not the released ones"
            )
        return self

    @model_validator(mode="after")
    def _a_fold_is_trained_and_scored(self) -> Self:
        own = self.idiolink_objective
        trained = own or self.admire_objective
        is_fold = trained is not None and trained.split in (CV_SPLIT, ADMIRE_CV_SPLIT)
        if is_fold != (self.data.fold is not None) or (
            trained is not None and is_fold and self.scored_folds != [trained.split]
        ):
            raise ValueError(ABOUT_FOLDS)
        if own and is_fold and own.tuples == "released":
            raise ValueError("objective.tuples=released are of the train split, not of a fold's idioms")
        return self

    @model_validator(mode="after")
    def _monitor_is_scored(self) -> Self:
        self.check_named("eval.benchmarks", self.eval.benchmarks)
        known = self.score_keys(self.eval.benchmarks)
        for key in self.trainer.monitor:
            if key not in known:
                raise ValueError(
                    f"trainer.monitor: {no_such_score(key, known)}. This run scores "
                    + "; ".join(self._scored_on(name) for name in self.benchmark.names)
                    + ": with split= set trainer.monitor= too"
                )
            if smaller_is_better(key):
                raise ValueError(
                    f"trainer.monitor={key}: the greatest is taken as the best, and of this score the "
                    "smallest is; choose another, as top1_accuracy or ndcg@5"
                )
        return self

    def _scored_on(self, benchmark: str) -> str:
        splits = ", ".join(self.splits(benchmark))
        return f"{benchmark} on {splits}" if splits else benchmark
