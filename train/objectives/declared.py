"""The objectives that the project knows; their options are in `options`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train.declarations.objective import ObjectiveType
from train.declarations.own_data import OWN
from train.declarations.registry import objective_types
from train.objectives.mixture_options import MixtureSettings
from train.objectives.options import (
    AdaptiveTripletSettings,
    IdioLinkObjectiveSettings,
    JointSettings,
)
from train.objectives.own_options import OwnSettings

_BUILDERS = "train.factory.objectives"
_TRAINED_ON = {
    "idiolink": ("idiolink",),
    "adaptive_triplet": ("semeval2022_task2b",),
}


def _datasets_of_joint(objective: Mapping[str, Any]) -> list[str]:
    return [name for part in objective["proportions"] for name in _TRAINED_ON[part]]


def _datasets_of_parts(objective: Mapping[str, Any]) -> list[str]:
    """Those of each part; of one that says nothing, a name that no data set has."""
    names: list[str] = []
    for name, part in objective["parts"].items():
        declared = objective_types().get(part["objective"])
        known = declared is not None and declared.datasets
        names += known(part["options"]) if known else [f"the data of the part {name}"]
    return names


DECLARED = [
    ObjectiveType(
        "idiolink",
        IdioLinkObjectiveSettings,
        "train.factory.idiolink_objective:idiolink_objective",
        lambda _: _TRAINED_ON["idiolink"],
    ),
    ObjectiveType(
        "adaptive_triplet",
        AdaptiveTripletSettings,
        f"{_BUILDERS}:triplet_objective",
        lambda _: _TRAINED_ON["adaptive_triplet"],
    ),
    ObjectiveType("own", OwnSettings, "train.factory.own:own_objective", lambda _: [OWN]),
    ObjectiveType("joint", JointSettings, f"{_BUILDERS}:joint_objective", _datasets_of_joint),
    ObjectiveType("mixture", MixtureSettings, f"{_BUILDERS}:mixture_objective", _datasets_of_parts),
]
