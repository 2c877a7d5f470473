"""`idiomtune learn`: teach a model the expressions of a glossary."""

from pathlib import Path
from typing import Any

from idiomtune.config import LearnSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> Path:
    """Learn; returns the new model's folder."""
    settings = ready(LearnSettings, config)
    from idiomtune.programs.learn import learn

    return learn(settings)


if __name__ == "__main__":
    launch("learn", run)
