"""The configuration, checked: types, ranges, and what must fit together. Imports nothing heavy.

Defaults and the meaning of options are in `conf/` and nowhere else; here is what is allowed.
"""

from train.config.common import Common
from train.config.evaluation import EvaluateSettings
from train.config.export import ExportSettings
from train.config.learning import LearnSettings
from train.config.messages import check
from train.config.model import ModelSettings
from train.config.push import HubSettings, PushSettings
from train.config.trainer import EvalSettings, RetainSettings, TrainerSettings
from train.config.training import TrainSettings

__all__ = [
    "Common",
    "EvalSettings",
    "EvaluateSettings",
    "ExportSettings",
    "HubSettings",
    "LearnSettings",
    "ModelSettings",
    "PushSettings",
    "RetainSettings",
    "TrainSettings",
    "TrainerSettings",
    "check",
]
