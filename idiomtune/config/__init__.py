"""The configuration, checked: types, ranges, and what must fit together. Imports nothing heavy.

Defaults and the meaning of options are in `conf/` and nowhere else; here is what is allowed.
"""

from idiomtune.config.sections import EvalSettings, ForgettingSettings, TrainerSettings
from idiomtune.config.settings import (
    Common,
    EvaluateSettings,
    ExploreSettings,
    FindSettings,
    GlossarySettings,
    HubSettings,
    LearnSettings,
    NewSettings,
    PushSettings,
    ReportSettings,
    ReviewSettings,
    SelectSettings,
    TextSearchSettings,
    TrainSettings,
    WriteSettings,
)
from idiomtune.config.validation import check
from idiomtune.plugins.models import ModelSettings

__all__ = [
    "Common",
    "EvalSettings",
    "EvaluateSettings",
    "ExploreSettings",
    "FindSettings",
    "ForgettingSettings",
    "GlossarySettings",
    "HubSettings",
    "LearnSettings",
    "ModelSettings",
    "NewSettings",
    "PushSettings",
    "ReportSettings",
    "ReviewSettings",
    "SelectSettings",
    "TextSearchSettings",
    "TrainSettings",
    "TrainerSettings",
    "WriteSettings",
    "check",
]
