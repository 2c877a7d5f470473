"""`python -m train.evaluate`: the scorecard of any embedding model, without training."""

from typing import Any

from train.cli.launch import launch
from train.cli.quick_imports import quick_imports
from train.config import EvaluateSettings, check


def run(config: dict[str, Any]) -> None:
    """Score one model."""
    settings: EvaluateSettings = check(EvaluateSettings, config)
    with quick_imports():  # after the configuration is checked
        from train.recipes.evaluate import score_model

    score_model(settings, config)


def main() -> None:
    launch("evaluate", run)


if __name__ == "__main__":
    main()
