"""`idiomtune glossary`: a glossary from dictionaries."""

from typing import Any

from train.config import check
from train.config.settings import GlossarySettings
from train.io.files import printable
from train.programs.launch import launch


def run(config: dict[str, Any]) -> None:
    """Make the glossary, and print its file."""
    settings: GlossarySettings = check(GlossarySettings, config)
    from train.programs.glossary import glossary  # heavy: after the options are known to be right

    print(printable(str(glossary(settings))))


def main() -> None:
    launch("glossary", run)


if __name__ == "__main__":
    main()
