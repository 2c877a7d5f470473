"""Objectives as `conf/objective/` has them, for tests that change some of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from idiomtune.data.idiolink import Document, Split, TrainingTuple
from idiomtune.data.semeval2022 import SentenceGroup
from idiomtune.data.user.load import UserSplits
from idiomtune.objectives.idiolink import IdioLinkObjective
from idiomtune.objectives.triplets import AdaptiveTripletObjective
from idiomtune.objectives.user_data import UserContrastiveObjective
from idiomtune.plugins.registry import objective_types
from tests.tiny_runs import composed

_SECTIONS = {
    name: composed("train", f"objective={name}")["objective"]
    for name in ("idiolink", "adaptive_triplet", "own")
}


def options(name: str, **changes: Any) -> Any:
    """The section of an objective; a dictionary changes some of a section in it."""
    section = dict(_SECTIONS[name])
    if "mask" in section:  # null is the model's own, which the factory fills in
        section["mask"] = "[MASK]"
    for key, value in changes.items():
        section[key] = section[key] | value if isinstance(value, dict) else value
    return objective_types()[name].options.model_validate(section)


def idiolink(
    split: Split,
    tuples: Callable[[int], list[TrainingTuple]] | Sequence[Document],
    *,
    batch_size: int = 2,
    seed: int = 0,
    **changes: Any,
) -> IdioLinkObjective:
    """IdioLink's defaults with these tuples, or each of these records against the others."""
    chosen = options("idiolink", **changes)
    return IdioLinkObjective(chosen, split, tuples, batch_size=batch_size, seed=seed)


def own_pairs(
    splits: UserSplits, *, batch_size: int = 2, seed: int = 0, **changes: Any
) -> UserContrastiveObjective:
    """The defaults for one's own pairs, and sentences with groups."""
    defaults: dict[str, Any] = {"query_mode": ["span"], "document_mode": ["sentence"]}
    chosen = options("own", **(defaults | changes))
    return UserContrastiveObjective(chosen, splits, batch_size=batch_size, seed=seed)


def triplets(
    groups: Sequence[SentenceGroup], *, batch_size: int = 16, seed: int = 0, **changes: Any
) -> AdaptiveTripletObjective:
    """The adaptive triplet objective's defaults on these groups (`groups_`: the option of that name)."""
    chosen = options("adaptive_triplet", **{name.rstrip("_"): value for name, value in changes.items()})
    return AdaptiveTripletObjective(chosen, groups, [], batch_size=batch_size, seed=seed)
