"""The configuration, checked: types, ranges, and what must fit together. Imports nothing heavy.

Default values and what each option means stand in `conf/`, nowhere else; here is what is allowed.
"""

from train.settings.common import Common
from train.settings.evaluation import EvaluateSettings
from train.settings.messages import check
from train.settings.model import ModelSettings
from train.settings.objectives import (
    AdaptiveTripletSettings,
    AdmireObjectiveSettings,
    IdioLinkObjectiveSettings,
    JointSettings,
)
from train.settings.push import HubSettings, PushSettings
from train.settings.trainer import EvalSettings, RetainSettings, TrainerSettings
from train.settings.training import TrainSettings

__all__ = [
    "AdaptiveTripletSettings",
    "AdmireObjectiveSettings",
    "Common",
    "EvalSettings",
    "EvaluateSettings",
    "HubSettings",
    "IdioLinkObjectiveSettings",
    "JointSettings",
    "ModelSettings",
    "PushSettings",
    "RetainSettings",
    "TrainSettings",
    "TrainerSettings",
    "check",
]
