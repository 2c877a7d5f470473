"""All settings of a training run, and what must fit together in them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Self

from pydantic import NonNegativeInt, model_validator

from train.scorekeys import CV_SPLIT, smaller_is_better
from train.settings.common import ABOUT_FOLDS, Common
from train.settings.objectives import IdioLinkObjectiveSettings, JointSettings, ObjectiveSettings
from train.settings.trainer import EvalSettings, RetainSettings, TrainerSettings


class TrainSettings(Common):
    objective: ObjectiveSettings
    trainer: TrainerSettings
    retain: RetainSettings
    eval: EvalSettings
    seed: NonNegativeInt
    run_dir: str | None
    resume: str | None

    @property
    def idiolink_objective(self) -> IdioLinkObjectiveSettings | None:
        """The objective `idiolink`, alone or as a part of a joint one."""
        own = self.objective.idiolink if isinstance(self.objective, JointSettings) else self.objective
        return own if isinstance(own, IdioLinkObjectiveSettings) else None

    @model_validator(mode="after")
    def _new_tokens_are_trained(self) -> Self:
        if self.retain.lora.rank is not None and self.model.idiom_tokens is not None:
            raise ValueError(
                "retain.lora.rank and model.idiom_tokens exclude each other: adapters leave the words' "
                "vectors as they are, so that the new tokens would learn nothing"
            )
        return self

    @model_validator(mode="after")
    def _whole_runs_of_idioms(self) -> Self:
        own = self.idiolink_objective
        idioms = own.idioms_per_batch if own else None
        if idioms is not None and self.trainer.batch_size % idioms:
            raise ValueError(
                f"objective.idioms_per_batch={idioms} idioms cannot have equally many of "
                f"trainer.batch_size={self.trainer.batch_size} anchors"
            )
        parts = self.trainer.accumulation
        if own and own.tuples == "batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of objective.idioms_per_batch={idioms} idioms so "
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
        wanted, own = self.data.fold is not None, self.idiolink_objective
        if (own is not None and own.split == CV_SPLIT) != wanted:
            raise ValueError(ABOUT_FOLDS)
        if own and wanted and own.tuples == "released":
            raise ValueError("objective.tuples=released are of the train split, not of a fold's idioms")
        return self

    @model_validator(mode="after")
    def _monitor_is_scored(self) -> Self:
        self.check_named("eval.benchmarks", self.eval.benchmarks)
        known = self.score_keys(self.eval.benchmarks)
        for key in self.trainer.monitor:
            if key not in known:
                raise ValueError(
                    f"{_unknown_score(key, known)}. This run scores "
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


def _unknown_score(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.3)
    return (
        f"trainer.monitor: this run has no score {key!r}; the nearest it has: {', '.join(close) or 'none'} "
        "(keys are as the table of scores shows them)"
    )
