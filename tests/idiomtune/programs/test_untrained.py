"""The untrained model is scored once, however many runs start from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idiomtune import Encoder
from idiomtune.benchmarks import embeddings
from idiomtune.config import EvaluateSettings, validate
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.programs.evaluate import evaluate as score_model
from idiomtune.requests import LabelledUse
from tests.tiny_models import constant_gate
from tests.tiny_runs import composed, train


def test_runs_that_start_from_one_model_have_one_baseline(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Bit for bit what a run computes that keeps nothing."""
    caplog.set_level("INFO")
    kept = []
    for name, cache, seed in (("alone", "false", 1), ("first", "true", 2), ("second", "true", 3)):
        caplog.clear()
        train(tmp_path / name, [*options, f"eval.cache={cache}", f"seed={seed}", "trainer.max_steps=1"])
        kept.append("are read from the cache" in caplog.text)
    assert kept == [False, False, True]
    for file in ("baseline.json", "per_query_baseline/idiolink.jsonl"):
        contents = {(tmp_path / name / file).read_bytes() for name in ("alone", "first", "second")}
        assert len(contents) == 1


def test_an_evaluation_embeds_no_text_again(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same model and texts; another model is embedded, and so is all with `cache=false`."""
    given = ("model=pretrained", f"model.path={tiny_path}", "data=sample", "device=cpu")

    caplog.set_level("INFO")

    def scores(*options: str) -> dict[str, float]:
        return score_model(validate(EvaluateSettings, composed("evaluate", *given, *options)))

    first = scores()
    on_what = next(text for record in caplog.records if "idiolink (val)" in (text := record.getMessage()))
    assert "semeval2022 (dev)" in on_what
    monkeypatch.setattr(embeddings, "embed_now", None)
    assert scores("benchmarks=null") == first
    for other in ("cache=false", "model.pooling=cls"):
        with pytest.raises(TypeError):
            scores(other)


def test_the_baseline_reads_a_glossary_by_a_gate_as_an_evaluation_does(
    tiny: Encoder, tiny_path: Path, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = constant_gate(tiny.dimension, 1.0)
    monkeypatch.setattr("idiomtune.glossaries.choose.fitted_gate", lambda *_: gate)
    texts = [(f"{n} ships pulled the plug", n % 2 == 0) for n in range(4)]
    usages = [
        LabelledUse(str(n), "pull the plug", text, (8, 23), used) for n, (text, used) in enumerate(texts)
    ]
    for module in ("training.prepare", "training.finish", "programs.evaluate"):
        monkeypatch.setattr(f"idiomtune.{module}.labelled_usages", lambda *_, **__: usages)
    root = f"data.idiolink={SAMPLE_ROOT / 'idiolink'}"
    glossary = [root, "model.glossary=sample", "model.glossary_gate=true"]
    train(tmp_path / "run", [*options, *glossary, "data=public", "trainer.max_steps=1"])
    baseline = json.loads((tmp_path / "run" / "baseline.json").read_text(encoding="utf-8"))
    given = (
        "model=pretrained",
        f"model.path={tiny_path}",
        "device=cpu",
        "benchmarks=[idiolink]",
        "split=[val]",
    )
    scores = score_model(validate(EvaluateSettings, composed("evaluate", *given, *glossary)))
    shared = baseline.keys() & scores.keys()
    assert shared
    assert {key: baseline[key] for key in shared} == pytest.approx(
        {key: scores[key] for key in shared}, abs=1e-6
    )
