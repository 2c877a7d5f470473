"""`idiomtune glossary`: a glossary from dictionaries."""

from pathlib import Path
from typing import Any

from idiomtune.config import check
from idiomtune.config.settings import GlossarySettings
from idiomtune.programs.launch import launch


def run(config: dict[str, Any]) -> Path:
    """Make the glossary; returns its file."""
    settings = check(GlossarySettings, config)
    from idiomtune.programs.glossary import glossary  # heavy: after the options are known to be right

    return glossary(settings)


if __name__ == "__main__":
    launch("glossary", run)
