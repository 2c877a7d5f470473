"""Objectives as `conf/objective/` has them, for tests that change some of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.tiny_runs import composed
from train.data.semeval2022 import Group
from train.declarations.registry import objective_types
from train.objectives.contrastive import ContrastiveObjective
from train.objectives.shared import ContrastiveData
from train.objectives.triplets import TripletObjective

_SECTIONS = {
    name: composed("config", f"objective={name}")["objective"]
    for name in ("idiolink", "adaptive_triplet", "own")
}


def options(name: str, **changes: Any) -> Any:
    """The section of an objective; a dictionary changes some of a section in it."""
    section = dict(_SECTIONS[name])
    for key, value in changes.items():
        section[key] = section[key] | value if isinstance(value, dict) else value
    return objective_types()[name].options.model_validate(section)


def contrastive(
    data: ContrastiveData, *, batch_size: int = 2, seed: int = 0, **changes: Any
) -> ContrastiveObjective:
    """IdioLink's defaults with other data."""
    return ContrastiveObjective(data, options("idiolink", **changes), batch_size=batch_size, seed=seed)


def triplets(
    groups: Sequence[Group], *, batch_size: int = 16, seed: int = 0, **changes: Any
) -> TripletObjective:
    """The adaptive triplet objective's defaults on these groups."""
    changes = {
        name.rstrip("_"): value for name, value in changes.items()
    }  # `groups_`: the option of that name
    built: TripletObjective = options("adaptive_triplet", **changes).of_groups(
        groups, [], batch_size=batch_size, seed=seed
    )
    return built
