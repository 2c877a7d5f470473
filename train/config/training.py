"""All settings of a training run, and what must fit together in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from train.config.common import ABOUT_FOLDS, Common
from train.config.messages import no_such_score
from train.config.push import HubSettings
from train.config.tracking import TrackingSettings
from train.config.trainer import EvalSettings, RetainSettings, TrainerSettings
from train.declarations.options import Text
from train.declarations.registry import ObjectiveSettings, smaller_is_better


class TrainSettings(Common):
    objective: ObjectiveSettings
    trainer: TrainerSettings
    retain: RetainSettings
    eval: EvalSettings
    hub: HubSettings
    tracking: TrackingSettings = TrackingSettings()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]  # what torch and numpy take
    run_dir: Text | None
    name: Text | None = None
    resume: Text | None

    def splits(self, benchmark: str) -> list[str]:
        """The splits that a benchmark is scored on; those that the objective brings come first."""
        brought = self.objective.splits(benchmark) if benchmark in self.benchmark.names else []
        return brought or super().splits(benchmark)

    def score_keys(self, benchmarks: Sequence[str] | None) -> list[str]:
        """Every score key that these settings can give, including those of an objective's modules."""

        def splits(benchmark: str) -> list[str]:
            is_left_out = benchmarks is not None and benchmark not in benchmarks
            return [] if is_left_out else self.splits(benchmark)

        return [*super().score_keys(benchmarks), *self.objective.score_keys(splits)]

    @property
    def checkpoint_benchmarks(self) -> list[str] | None:
        """The benchmarks that checkpoints are scored on while training; None = all."""
        if self.eval.benchmarks == "monitored":
            return list(dict.fromkeys(key.partition("/")[0] for key in self.trainer.monitor))
        return self.eval.benchmarks if isinstance(self.eval.benchmarks, list) else None

    @property
    def cut_dimensions(self) -> list[int]:
        named = self.trainer.matryoshka if self.eval.dimensions is None else self.eval.dimensions
        return named or []

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.trainer.matryoshka and self.objective.trains_modules:
            yield (
                f"trainer.matryoshka={self.trainer.matryoshka}: the objective {self.objective.name} trains "
                "modules that take whole embeddings; leave it out"
            )
        if self.trainer.freeze_encoder and not self.objective.trains_modules:
            yield (
                f"trainer.freeze_encoder=true: the objective {self.objective.name} trains nothing but the "
                "encoder"
            )
        if self.trainer.freeze_encoder and (self.retain.is_on or self.model.idiom_tokens is not None):
            yield (
                "trainer.freeze_encoder=true leaves the encoder as it is: retain.* and model.idiom_tokens "
                "have nothing to do there; leave them out"
            )
        if self.hub.push is not None and self.data.sample and not self.hub.allow_sample:
            yield (
                f"hub.push={self.hub.push} with data=sample publishes a model that was only trained as a "
                "test: if you mean it, add hub.allow_sample=true"
            )
        if self.retain.lora.rank is not None and self.model.idiom_tokens is not None:
            yield (
                "retain.lora.rank and model.idiom_tokens exclude each other: adapters leave the "
                "token embeddings as they are, so that the new tokens would learn nothing"
            )
        if self.trainer.only_idiom_tokens and self.retain.is_on:
            yield (
                "trainer.only_idiom_tokens=true leaves everything else as it is: retain.* has nothing to do "
                "there; leave it out"
            )
        trained = self.objective.fold_split
        if (trained is None) != (self.data.fold is None) or (trained and self.scored_folds != [trained]):
            yield ABOUT_FOLDS
        if self.data.negatives.corpus is not None and self.objective.name not in ("own", "mixture"):
            yield (
                "data.negatives.corpus: hard negatives are mined for your own pairs, but the objective is "
                f"{self.objective.name}: add +experiment=own, or leave it out"
            )
        self.objective.check_with(self)
        named = self.eval.benchmarks
        if isinstance(named, list):
            self.check_named("eval.benchmarks", named)
        known = self.score_keys(named if isinstance(named, list) else None)
        for key in self.trainer.monitor:
            if key not in known:
                yield (
                    f"trainer.monitor: {no_such_score(key, known)}. This run scores "
                    + "; ".join(self._scored_on(name) for name in self.benchmark.names)
                    + ": with split= set trainer.monitor= too"
                )
            if smaller_is_better(key):
                yield (
                    f"trainer.monitor={key}: the greatest is taken as the best, and of this score the "
                    "smallest is; choose another, as top1_accuracy or ndcg@5"
                )

    def _scored_on(self, benchmark: str) -> str:
        splits = ", ".join(self.splits(benchmark))
        return f"{benchmark} on {splits}" if splits else benchmark
