"""All that a user does with a model, on a tiny one of every family: the steps of `make models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_families import FAMILIES, tiny_checkpoint
from tools.model_runs import ModelRun, steps_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiomtune.reports.plots.draw_figures", lambda _: None)  # alike for all
    family = FAMILIES[name]
    model = tiny_checkpoint(family, tmp_path / "model")
    options = [f"pooling={family.pooling}"]
    if list(FAMILIES).index(name) % 2:
        options += ["query_prompt='query: '", "document_prompt='passage: '"]
    run = ModelRun(str(model), tmp_path, options, "something")
    failed = {step: said for step, said in steps_of(run).items() if said.startswith("FAILED")}
    assert not failed
