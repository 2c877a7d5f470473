"""All that a user does with a model, on a tiny one of every family: the steps of `make models`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from idiomtune.data.usages import labelled_usages
from tests.tiny_families import FAMILIES, tiny_checkpoint
from tools.model_runs import ModelRun, steps_of

pytestmark = pytest.mark.slow
# An encoder, one with a decoder, and a decoder; of others the steps that read their own code.
WHOLE = {"bert", "t5", "llama"}
OWN_CODE = ["train", "evaluate", "learn_tokens", "glossary", "push", "snippets"]
usages_without = cache(lambda unseen: labelled_usages(unseen))  # the same for all families


@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usages = lambda unseen, *_, **__: usages_without(frozenset(unseen))  # noqa: E731
    monkeypatch.setattr("tools.model_runs.labelled_usages", usages)
    for alike in ("reports.plots.draw_figures", "hub.model_card.describe_outcome"):  # whatever the family
        monkeypatch.setattr(f"idiomtune.{alike}", lambda *_: [])
    if name not in WHOLE:
        monkeypatch.setattr("tools.model_runs.STEPS", OWN_CODE)
    family = FAMILIES[name]
    model = tiny_checkpoint(family, tmp_path / "model")
    options = [f"pooling={family.pooling}"]
    if list(FAMILIES).index(name) % 2:
        options += ["query_prompt='query: '", "document_prompt='passage: '"]
    run = ModelRun(str(model), tmp_path, options)
    run.training.append("benchmark.idiolink.bm25_modes=[]")
    failed = {step: said for step, said in steps_of(run).items() if said.startswith("FAILED")}
    assert not failed
