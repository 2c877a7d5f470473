"""The configuration, checked: types, ranges, and what must fit together. Imports nothing heavy.

Defaults and the meaning of options are in `conf/` and nowhere else; here is what is allowed.
"""

from idiomtune.config.sections import EvalSettings, ForgettingSettings, TrainerSettings
from idiomtune.config.settings import (
    Common,
    EvaluateSettings,
    HubSettings,
    LearnSettings,
    PushSettings,
    TrainSettings,
)
from idiomtune.config.validation import validate
from idiomtune.plugins.models import ModelSettings

__all__ = [
    "Common",
    "EvalSettings",
    "EvaluateSettings",
    "ForgettingSettings",
    "HubSettings",
    "LearnSettings",
    "ModelSettings",
    "PushSettings",
    "TrainSettings",
    "TrainerSettings",
    "validate",
]
