"""`idiomtune glossary`: a glossary from dictionaries."""

from typing import Any

from idiomtune.config import check
from idiomtune.config.settings import GlossarySettings
from idiomtune.io.files import printable
from idiomtune.programs.launch import launch


def run(config: dict[str, Any]) -> None:
    """Make the glossary, and print its file."""
    settings: GlossarySettings = check(GlossarySettings, config)
    from idiomtune.programs.glossary import glossary  # heavy: after the options are known to be right

    print(printable(str(glossary(settings))))


def main() -> None:
    launch("glossary", run)


if __name__ == "__main__":
    main()
