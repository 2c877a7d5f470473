"""What every program does first: check its settings, then import what takes seconds."""

from __future__ import annotations

import gc
import sys
from typing import Any

from train.config import TrainSettings, check
from train.declarations.options import Section


def ready(kind: type[Section], config: dict[str, Any]) -> Any:
    """The checked settings of a program; then torch and all else that takes seconds is imported.

    No garbage is collected meanwhile, and what these imports leave is never looked through: their million
    objects all stay.

    Raises:
        UserError: naming each option that is wrong, before anything heavy is imported.
    """
    settings = check(kind, config)
    if isinstance(settings, TrainSettings):
        settings.objective.check_files(settings)
    if "torch" not in sys.modules:  # else a sweep's earlier runs may have left garbage
        gc.disable()
        try:
            import sentence_transformers  # noqa: F401

            gc.freeze()
        finally:
            gc.enable()
    return settings
