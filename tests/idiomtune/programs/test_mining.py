"""Hard negatives mined for own pairs: the nearest texts that are no positives, kept in the run folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune import Encoder
from idiomtune.config import TrainSettings, validate
from idiomtune.errors import Interrupted
from idiomtune.objectives.user_data import UserContrastiveObjective
from idiomtune.programs.check import check as check_data
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.objective import build_objective
from tests.own_data import write, write_lines
from tests.programs import refused
from tests.tiny_runs import at_loss, composed, metrics, resume, terminate, train, weights

CORPUS = [
    *("A cat sat.", "Rates rose.", "The bank cut rates.", "A dog barked.", "Rain fell on the town."),
    *("He broke the ice.", "She spilled the beans.", "It rains.", "Cats sit.", "What is rain?"),
]
PAIRS: list[dict[str, Any]] = [
    {"query": "What is rain?", "pos": ["Rain fell on the town."], "neg": []},
    {"query": "What is rain?", "pos": ["It rains."], "neg": ["She spilled the beans."]},
    {"query": "a sitting cat", "pos": ["Cats sit."], "neg": []},
    {"query": "interest", "pos": ["Rates rose."], "neg": []},
]


@pytest.fixture
def mining(tmp_path: Path, tiny_path: Path) -> list[str]:
    rows = [{"text": text} for text in CORPUS]
    return [
        *("+experiment=own", "device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}"),
        f"data.train={write_lines(tmp_path / 'pairs.jsonl', PAIRS)}",
        f"data.val={write_lines(tmp_path / 'val.jsonl', [{'query': 'a dog', 'pos': ['A dog barked.']}])}",
        f"data.negatives.corpus={write_lines(tmp_path / 'corpus.jsonl', rows)}",
        *("data.negatives.number=3", "trainer.batch_size=4"),
    ]


def settings_of(*options: str) -> TrainSettings:
    settings: TrainSettings = validate(TrainSettings, composed("train", *options))
    return settings


def candidates(objective: Any) -> list[tuple[str, list[str], list[str]]]:
    """Of each row its anchor, positives, negatives."""
    assert isinstance(objective, UserContrastiveObjective)
    examples, read = objective.examples, objective.store.read_text
    found = []
    for row in range(len(examples)):
        positives, negatives = ([read(n) for n in numbers] for numbers in objective.candidates(0, row))
        found.append((read(examples.anchors[row].item()), positives, negatives))
    return found


@torch.no_grad()
def similarities(encoder: Encoder, anchor: str, texts: list[str]) -> list[float]:
    query, *documents = encoder([EmbeddingRequest(anchor, role="query"), *map(EmbeddingRequest, texts)])
    return [float(query @ document) for document in documents]


def test_they_are_the_nearest_that_are_no_positives(
    mining: list[str], tiny: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of any row of the anchor; nor the anchor itself. The row's own negatives stay, before them."""
    with caplog.at_level("INFO"):
        objective = build_objective(settings_of(*mining), tmp_path)
    assert "hard negatives: 9 for 3 of 3 anchors" in caplog.text
    positives = {"What is rain?": {"Rain fell on the town.", "It rains.", "What is rain?"}}
    found = candidates(objective)
    assert len(found) == 4
    for pair, (anchor, own, negatives) in zip(PAIRS, found, strict=True):
        texts = [text for text in CORPUS if text not in positives.get(anchor, own)]
        similarity = dict(zip(texts, similarities(tiny, anchor, texts), strict=True))
        nearest = sorted(texts, key=lambda text: -similarity[text])[:3]
        given = pair["neg"]
        assert negatives == [*given, *(text for text in nearest if text not in given)]
    assert tmp_path / "negatives.jsonl" in objective.files
    assert not any(negatives for _, _, negatives in candidates(build_objective(settings_of(*mining)))[2:])


def test_another_model_mines_and_without_a_corpus_other_anchors_positives_are_taken(
    mining: list[str], tmp_path: Path, tiny_path: Path
) -> None:
    model = shutil.copytree(tiny_path, tmp_path / "miner")
    options = ["model.path=/nowhere", f"data.negatives.model={model}", "data.negatives.corpus=null"]
    found = candidates(build_objective(settings_of(*mining, *options), tmp_path))
    texts = {text for _, own, _ in found for text in own}
    mined = {*found[2][2]}
    assert mined
    assert mined <= texts - {*found[2][1]}


def test_options_leave_texts_out(mining: list[str], tiny: Encoder, tmp_path: Path) -> None:
    objective = build_objective(settings_of(*mining, "data.negatives.margin=0.0"), tmp_path)
    for anchor, own, negatives in candidates(objective)[2:]:
        positive, *others = similarities(tiny, anchor, [*own, *negatives])
        assert all(other <= positive + 1e-6 for other in others)
    (tmp_path / "empty").mkdir()
    nothing = build_objective(settings_of(*mining, "data.negatives.range_min=40"), tmp_path / "empty")
    assert [negatives for _, _, negatives in candidates(nothing)] == [[], ["She spilled the beans."], [], []]


def test_of_groups_no_text_of_the_same_meaning_is_taken(mining: list[str], tmp_path: Path) -> None:
    rows = [
        {"anchor": "It is pouring.", "positive": "Rain fell on the town.", "meaning": "m"},
        {"anchor": "It drizzles.", "positive": "It rains.", "meaning": "m"},
        {"anchor": "Rain check", "positive": "Later, then.", "meaning": "other"},
    ]
    write_lines(tmp_path / "pairs.jsonl", [row | {"group": "rain"} for row in rows])
    found = candidates(build_objective(settings_of(*mining, "data.negatives.number=9"), tmp_path))
    same = {"It is pouring.", "Rain fell on the town.", "It drizzles.", "It rains."}
    assert all(negatives and not same & {*negatives} for _, _, negatives in found[:2])
    assert "Rain fell on the town." in found[2][2]  # of the other meaning


def test_a_resumed_run_trains_on_the_same_ones(
    mining: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs mine the same; a resumed one mines nothing, and ends with the same weights."""
    options = [*mining, "trainer.max_epochs=4", "benchmark=[own_val]", "trainer.monitor=own_val/score"]
    options += ["trainer.learning_rate=1e-3"]
    train(tmp_path / "whole", options)
    kept = (tmp_path / "whole" / "negatives.jsonl").read_bytes()
    at_loss(monkeypatch, 2, terminate)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", options)
    monkeypatch.undo()
    assert (tmp_path / "run" / "negatives.jsonl").read_bytes() == kept
    (tmp_path / "corpus.jsonl").unlink()
    monkeypatch.setattr("sentence_transformers.util.mine_hard_negatives", None)
    resume(tmp_path / "run")
    ours, theirs = (weights(tmp_path / name / "best") for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["own", "mixture"])
def test_a_check_reads_the_corpus_and_loads_no_model(
    mining: list[str], tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    without_weights = shutil.ignore_patterns("*.safetensors")
    model = f"model.path={shutil.copytree(tiny_path, tmp_path / 'model', ignore=without_weights)}"
    options = [*mining, model, "benchmark=[own_val]", "trainer.monitor=own_val/score"]
    if kind == "mixture":
        part = "data: {{train: {0}/pairs.jsonl, val: {0}/val.jsonl, negatives: {{number: 2, corpus: {1}}}}}"
        given = part.format(tmp_path, tmp_path / "corpus.jsonl")
        options = ["+experiment=mixture", f"+objective.parts.p={{{given}}}", "trainer.batch_size=4"]
        options += ["model=pretrained", model]
    check_data(settings_of(*options))
    assert "hard negatives" in capsys.readouterr().out
    write(tmp_path / "corpus.jsonl", '{"text": "A cat."}\n{"text": ""}\n')
    refused(lambda: check_data(settings_of(*options)), "corpus.jsonl", "row 2, field 'text'")


def test_what_cannot_be_mined_is_said(
    mining: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_built(*options: str, named: str, folder: Path | None = None) -> None:
        refused(lambda: build_objective(settings_of(*mining, *options), folder), *named.split())

    for wrong in ("range_max=2", "number=null"):
        not_built(f"data.negatives.{wrong}", named="data.negatives: number")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "datasets", None)
        not_built(named="idiomtune[data]", folder=tmp_path)
    not_built("data.negatives.corpus=/nowhere.jsonl", named="data.negatives.corpus=/nowhere")
    labelled = [{"text": text, "label": str(i // 2)} for i, text in enumerate(CORPUS)]
    write_lines(tmp_path / "pairs.jsonl", labelled)
    held_out = write_lines(tmp_path / "val2.jsonl", [{"text": "x", "label": "y"}])
    options = ("data.val_share=0.2", f"data.val={held_out}")
    not_built(*options, named="data.negatives.number sentences", folder=tmp_path)
