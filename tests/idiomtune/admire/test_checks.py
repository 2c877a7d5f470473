"""AIMA's objective passes the checks for plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from idiomtune.testing import check_objective


@pytest.mark.parametrize(
    ("stage", "skip"),
    [
        # BERT's pooler is loaded and not used; at first only the senses are learnt.
        ("beside", ["unused"]),
        ("first", ["unused"]),
    ],
)
def test_aima(build: Callable[..., Any], stage: str, skip: list[str]) -> None:
    def made(seed: int) -> Any:
        return build(f"seed={seed}", f"objective.sense_encoder.stage={stage}", system="aima")

    assert "processes" in check_objective(made, skip=skip)
