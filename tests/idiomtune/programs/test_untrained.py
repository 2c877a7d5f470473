"""The untrained model is scored once, however many runs start from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from idiomtune.benchmarks import embeddings
from idiomtune.config import EvaluateSettings, check
from idiomtune.programs.evaluate import evaluate as score_model
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


def test_an_evaluation_embeds_no_text_again(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same model and texts; another model is embedded, and so is all with `cache=false`."""
    given = ("model=pretrained", f"model.path={tiny_path}", "data=sample", "device=cpu")

    def scores(*options: str) -> dict[str, float]:
        return score_model(check(EvaluateSettings, composed("evaluate", *given, *options)))

    first = scores()
    monkeypatch.setattr(embeddings, "embed_now", None)
    assert scores("benchmarks=null") == first
    for other in ("cache=false", "model.pooling=cls"):
        with pytest.raises(TypeError):
            scores(other)


def test_a_glossary_whose_expressions_do_not_occur_is_said_with_the_scores(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = []
    for expression in ("spill the beans", "xylophone of doom"):
        glossary = tmp_path / f"{expression[:5]}.csv"
        glossary.write_text(f"expression,meaning\n{expression},tell a secret\n", encoding="utf-8")
        given = ("model=pretrained", f"model.path={tiny_path}", "data=sample", "device=cpu")
        settings = composed("evaluate", *given, "benchmarks=[idiolink]", f"model.glossary={glossary}")
        score_model(check(EvaluateSettings, settings))
        noted.append("no expression occurs" in capsys.readouterr().out.replace("\n", " "))
    assert noted == [False, True]
