"""`idiomtune push`: a run's model, card and scores to the Hugging Face Hub, and a page about it."""

from typing import Any

from idiomtune.config import PushSettings, check
from idiomtune.programs.launch import launch


def run(config: dict[str, Any]) -> list[str | None]:
    """Push one checkpoint, or show what would be pushed; returns the addresses of the commits."""
    settings = check(PushSettings, config)
    from idiomtune.programs.publish import publish  # heavy: after the configuration is checked

    return publish(settings)


if __name__ == "__main__":
    launch("push", run)
