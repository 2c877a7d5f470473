"""`idiomtune learn`: teach a model the expressions of a glossary."""

from typing import Any

from idiomtune.config import LearnSettings
from idiomtune.io.files import printable
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Learn, and print the new model's folder."""
    settings: LearnSettings = ready(LearnSettings, config)
    from idiomtune.programs.learn import learn

    print(printable(str(learn(settings))))


def main() -> None:
    launch("learn", run)


if __name__ == "__main__":
    main()
