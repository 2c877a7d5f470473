"""Whether the trained model is better than the untrained one: by the paired test alone."""

from __future__ import annotations

import pytest

from idiomtune.reports.compare import Difference, beats_untrained

KEY = "own_val/score"
CANNOT = "cannot choose a checkpoint"


@pytest.mark.parametrize(
    ("after", "before", "interval", "num", "verdict"),
    [
        (0.5, 0.4992, (-0.1, 0.1), 11, "is not clearly better than the untrained model"),
        (0.5, 0.4, None, 11, "is not clearly better than the untrained model"),
        (0.5, 0.5, (0.0, 0.0), 11, "does NOT beat the untrained model"),
        (0.5, 0.4, (0.05, 0.15), 11, "beats the untrained model"),
        (1.0, 1.0, (0.0, 0.0), 11, CANNOT),
        (1.0, 0.5, (0.0, 0.0), 1, CANNOT),  # one query
    ],
)
def test_only_the_paired_test_beats_the_untrained_model(
    after: float, before: float, interval: tuple[float, float] | None, num: int, verdict: str
) -> None:
    """A score that is 1 for both, or of one query, cannot choose a checkpoint."""
    message = beats_untrained([Difference(KEY, after, before, num, num, interval, interval, 0.5, 0.5)])
    assert (CANNOT in message) == (verdict == CANNOT)
    assert verdict in message if verdict == CANNOT else message.startswith(verdict)


def test_without_a_paired_test_nothing_is_clearly_better() -> None:
    message = beats_untrained([Difference(KEY, 0.9, 0.1)])
    assert message.startswith("is not clearly better than the untrained model")
