"""The options of a search over hyperparameters, `hydra.sweeper` in a sweep with Optuna."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from train.declarations.options import Names, Section, as_list
from train.declarations.registry import smaller_is_better

Direction = Literal["maximize", "minimize"]


def _as_text(value: Any) -> Any:
    """A parameter's plain value (`true`, 3) as on the command line."""
    return (
        {k: v if isinstance(v, str) else str(v) for k, v in value.items()}
        if isinstance(value, dict)
        else value
    )


class SearchSettings(Section):
    study: Annotated[str, Field(min_length=1)]
    storage: str | None
    n_trials: PositiveInt
    n_jobs: PositiveInt
    objectives: Names | None
    directions: Annotated[list[Direction] | None, BeforeValidator(as_list)]
    params: Annotated[dict[str, str], BeforeValidator(_as_text)]
    sampler: Literal["tpe", "random", "nsgaii"]
    seed: NonNegativeInt
    startup_trials: NonNegativeInt
    pruner: Literal["none", "median", "hyperband"]
    pruner_startup_trials: NonNegativeInt
    pruner_evaluations: PositiveInt
    trial: NonNegativeInt | None

    @property
    def num_objectives(self) -> int:
        """One, unless several scores are named."""
        return len(self.objectives or [""])

    @property
    def known_directions(self) -> list[Direction]:
        """One for each objective."""
        if self.directions is not None:
            return self.directions
        return ["minimize" if smaller_is_better(key) else "maximize" for key in self.objectives or [""]]

    @model_validator(mode="after")
    def _one_direction_each(self) -> Self:
        if self.directions is not None and len(self.directions) != self.num_objectives:
            raise ValueError(
                f"directions: {len(self.directions)} for {self.num_objectives} objectives; give one each, "
                "or leave them out"
            )
        return self

    @model_validator(mode="after")
    def _pruned_by_one_score(self) -> Self:
        if self.pruner != "none" and self.num_objectives > 1:
            raise ValueError(
                f"pruner={self.pruner}: with several objectives no trial is hopeless after an evaluation; "
                "use hydra.sweeper.pruner=none"
            )
        return self
