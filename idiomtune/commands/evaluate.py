"""`idiomtune evaluate`: the scorecard of any embedding model, without training."""

from typing import Any

from idiomtune.config import EvaluateSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Score one model."""
    settings: EvaluateSettings = ready(EvaluateSettings, config)
    from idiomtune.programs.evaluate import score_model

    score_model(settings, config)


def main() -> None:
    launch("evaluate", run)


if __name__ == "__main__":
    main()
