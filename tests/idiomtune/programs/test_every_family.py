"""All that a user does with a model, on a tiny one of each kind of family: the steps of `make models`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from idiomtune.data.magpie import project_sentences
from idiomtune.data.usages import labelled_usages
from tests.tiny_families import FAMILIES, tiny_checkpoint
from tools.model_runs import STEPS, ModelRun, steps_of

pytestmark = pytest.mark.slow
# The steps that meet a family's own tokenizer and pooling; encoder/test_families.py has all families.
OWN_CODE = ["train", "learn_tokens", "glossary", "push", "snippets"]
MOST = [step for step in STEPS if step != "explore"]
# An encoder, one with a decoder, and a decoder; pieces of words, and an end token that is promised alone.
KINDS = {"bert": STEPS, "t5": MOST, "llama": MOST, "xlm_roberta": OWN_CODE, "mistral": OWN_CODE}
usages_without = cache(lambda unseen: labelled_usages(unseen)[:400])  # the same for all families
few_sentences = cache(lambda: project_sentences()[-300:])


@pytest.mark.parametrize("name", KINDS)
def test_every_step_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usages = lambda unseen, *_, **__: usages_without(frozenset(unseen))  # noqa: E731
    monkeypatch.setattr("tools.model_runs.labelled_usages", usages)
    monkeypatch.setattr("idiomtune.programs.learn.project_sentences", few_sentences)
    for alike in ("reports.plots.draw_figures", "hub.model_card.describe_outcome"):  # whatever the family
        monkeypatch.setattr(f"idiomtune.{alike}", lambda *_: [])
    monkeypatch.setattr("tools.model_runs.STEPS", KINDS[name])
    family = FAMILIES[name]
    model = tiny_checkpoint(family, tmp_path / "model")
    options = [f"pooling={family.pooling}"]
    if list(KINDS).index(name) % 2:
        options += ["query_prompt='query: '", "document_prompt='passage: '"]
    run = ModelRun(str(model), tmp_path, options)
    run.training.append("benchmark.idiolink.bm25_modes=[]")
    assert not {step: said for step, said in steps_of(run).items() if said.startswith("FAILED")}
