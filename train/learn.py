"""`python -m train.learn`: teach a model the expressions of a glossary."""

from typing import Any

from train.cli.launch import launch
from train.cli.quick_imports import quick_imports
from train.config import LearnSettings, check
from train.io.text import printable


def run(config: dict[str, Any]) -> None:
    """Learn, and print the new model's folder."""
    settings: LearnSettings = check(LearnSettings, config)
    with quick_imports():  # after the configuration is known to be right
        from train.recipes.learn import learn

    print(printable(str(learn(settings))))


def main() -> None:
    launch("learn", run)


if __name__ == "__main__":
    main()
