"""The objectives that the project knows; their options are in `options`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train.declarations.objective import ObjectiveType
from train.objectives.aima_options import AimaSettings
from train.objectives.options import (
    AdaptiveTripletSettings,
    AdmireObjectiveSettings,
    IdioLinkObjectiveSettings,
    JointSettings,
)
from train.objectives.own_options import OwnSettings

_EXPERTS_CARD = (
    "`experts/` holds what was trained beside the encoder for AdMIRe; `train.evaluate` scores it too."
)
_BUILDERS = "train.factory.objectives"
_TRAINED_ON = {
    "idiolink": ("idiolink",),
    "adaptive_triplet": ("semeval2022_task2b",),
    "admire": ("admire", "astitch"),
    "aima": ("admire", "astitch"),
}


def _datasets_of_parts(objective: Mapping[str, Any]) -> list[str]:
    return [name for part in objective["proportions"] for name in _TRAINED_ON[part]]


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
    ObjectiveType(
        "admire",
        AdmireObjectiveSettings,
        "train.factory.experts:admire_objective",
        lambda _: _TRAINED_ON["admire"],
        card=_EXPERTS_CARD,
    ),
    ObjectiveType("own", OwnSettings, "train.factory.own:own_objective"),
    ObjectiveType(
        "aima",
        AimaSettings,
        "train.factory.aima:aima_objective",
        lambda _: _TRAINED_ON["aima"],
        card=_EXPERTS_CARD,
    ),
    ObjectiveType("joint", JointSettings, f"{_BUILDERS}:joint_objective", _datasets_of_parts),
]
