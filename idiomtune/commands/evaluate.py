"""`idiomtune evaluate`: the scorecard of any embedding model, without training."""

from typing import Any

from idiomtune.config import EvaluateSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> dict[str, float]:
    """Score one model; returns the scores."""
    settings = ready(EvaluateSettings, config)
    from idiomtune.programs.evaluate import score_model

    return score_model(settings, config)


if __name__ == "__main__":
    launch("evaluate", run)
