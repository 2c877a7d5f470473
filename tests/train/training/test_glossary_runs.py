"""Runs whose model reads a glossary: recorded, resumed bit for bit, saved with what they need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from accelerate import Accelerator

from tests.tiny_runs import composed, resume, train
from train.config import EvaluateSettings, TrainSettings, check
from train.encoder.encoder import Encoder
from train.encoder.glossary import GLOSSARIES, Meanings
from train.encoder.usage_gate import fit_usage_gate
from train.errors import UserError
from train.factory import build_objective
from train.io.processes import Processes
from train.objectives import HasUsages
from train.programs.evaluate import score_model
from train.requests import Request
from train.training.embedder import TrainableEmbedder

GLOSSARY = ["model.glossary=sample", "model.glossary_dropout=0.5", "model.glossary_gate=true"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("glossary") / "whole"
    train(folder, [*options, *GLOSSARY])
    return folder


def test_the_glossary_is_recorded(whole: Path) -> None:
    record = json.loads((whole / "run.json").read_text(encoding="utf-8"))
    facts = record["glossary"]
    assert facts["files"] == ["sample.tsv"]
    assert facts["licences"] == ["CC0-1.0"]
    assert facts["gate"] is True
    assert facts["occurs"]["training"] == {"expressions": 6, "texts": 96}
    assert len(facts["sums"]["sample.tsv"]) == 64
    assert any(path.endswith("sample.tsv") for path in record["data"])
    meta = json.loads((whole / "scores.json").read_text(encoding="utf-8"))["meta"]
    assert "with a glossary (sample.tsv)" in meta["data"]
    card = (whole / "best" / "README.md").read_text(encoding="utf-8")
    assert "*with a glossary*" in card
    assert "CC0-1.0" in card


def test_the_saved_model_reads_as_it_was_trained_to(whole: Path) -> None:
    def scores(*overrides: str) -> dict[str, float]:
        config = composed(
            "evaluate",
            *("data=sample", "device=cpu", "model=pretrained", f"model.path={whole / 'best'}"),
            *("benchmark=[idiolink]", "benchmark.idiolink.query_modes=[sentence]", "split=[val]"),
            *("benchmark.idiolink.bm25_modes=[]", *overrides),
        )
        return score_model(check(EvaluateSettings, config), config)

    reported = json.loads((whole / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores() == pytest.approx(reported, abs=1e-9)
    assert scores("model.glossary=[]") != pytest.approx(reported, abs=1e-3)
    saved = Encoder.from_pretrained(whole / "best", device="cpu").meanings
    assert saved is not None
    assert saved.gate is not None


def test_the_gate_is_fitted_to_the_best_model_reading_without_meanings(
    whole: Path, options: list[str]
) -> None:
    objective = build_objective(check(TrainSettings, composed("config", *options, *GLOSSARY)))
    assert isinstance(objective, HasUsages)
    encoder = Encoder.from_pretrained(whole / "best", device="cpu")
    assert encoder.meanings is not None
    saved, encoder.meanings = encoder.meanings.gate, None
    texts, labels = zip(*objective.usages, strict=True)
    expected = fit_usage_gate(encoder.encode(texts), labels)
    assert saved is not None
    assert saved.direction == pytest.approx(expected.direction, abs=1e-3)
    assert saved.bias == pytest.approx(expected.bias, abs=1e-3)


def test_a_glossary_may_be_moved_but_not_changed(tmp_path: Path, options: list[str]) -> None:
    run, old, new = tmp_path / "run", tmp_path / "old", tmp_path / "new"
    old.mkdir()
    shutil.copy(GLOSSARIES / "sample.tsv", old / "mine.tsv")
    train(run, [*options, f"model.glossary={old / 'mine.tsv'}", "trainer.max_steps=1"])
    old.rename(new)
    moved, longer = f"model.glossary={new / 'mine.tsv'}", "trainer.max_steps=2"
    resume(run, moved, longer)
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["status"] == "finished"
    resume(run, longer)  # the new place is on record
    for other in ("[]", new / "yours.tsv"):
        with pytest.raises(UserError, match=r"model\.glossary"):
            resume(run, f"model.glossary={other}", longer)
    with (new / "mine.tsv").open("a", encoding="utf-8") as file:
        file.write("tie the knot\tget married\tno\ten\tme\tCC0\n")
    with pytest.raises(UserError, match=r"mine\.tsv changed"):
        resume(run, longer)


def test_meanings_are_left_out_of_the_share_of_texts_that_is_asked_for(tiny: Encoder) -> None:
    tiny.meanings = Meanings({"break the ice": ["make people relax"]}, dropout=0.25)
    embed = TrainableEmbedder(tiny, Accelerator(cpu=True), Processes(), seed=3)
    requests = [Request(f"They broke the ice {n} times.") for n in range(400)]
    dropped = [not r.with_meanings for r in embed._drop_meanings(requests, step=1, micro=0)]
    assert 70 < sum(dropped) < 130
    assert dropped == [not r.with_meanings for r in embed._drop_meanings(requests, step=1, micro=0)]
    assert dropped != [not r.with_meanings for r in embed._drop_meanings(requests, step=2, micro=0)]
    twice = embed._drop_meanings([requests[0], requests[0]], step=1, micro=0)
    assert twice[0] == twice[1]
