"""The options of a search over hyperparameters, `hydra.sweeper` in a sweep with Optuna."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

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

    def problems(self) -> Iterator[str]:
        if self.directions is not None and len(self.directions) != self.num_objectives:
            yield (
                f"directions: {len(self.directions)} for {self.num_objectives} objectives; give one each, "
                "or leave them out"
            )
        if self.pruner != "none" and self.num_objectives > 1:
            yield (
                f"pruner={self.pruner}: with several objectives no trial is hopeless after an evaluation; "
                "use hydra.sweeper.pruner=none"
            )
