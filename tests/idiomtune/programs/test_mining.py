"""Hard negatives mined for own pairs: the nearest texts that are no positives, kept by content."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.config import TrainSettings, check
from idiomtune.data.own.load import load_own
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.factory import build_objective
from idiomtune.objectives.own import OwnContrastiveObjective
from idiomtune.programs.prepare import check_data
from idiomtune.requests import Request
from tests.own_data import write, write_lines
from tests.tiny_runs import composed

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
def mining(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    rows = [{"text": text} for text in CORPUS]
    return [
        *("+experiment=own", "device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}"),
        f"data.train={write_lines(tmp_path / 'pairs.jsonl', PAIRS)}",
        f"data.val={write_lines(tmp_path / 'val.jsonl', [{'query': 'a dog', 'pos': ['A dog barked.']}])}",
        f"data.negatives.corpus={write_lines(tmp_path / 'corpus.jsonl', rows)}",
        *("data.negatives.num=3", "trainer.batch_size=4"),
    ]


def settings_of(*options: str) -> TrainSettings:
    settings: TrainSettings = check(TrainSettings, composed("config", *options))
    return settings


def candidates(objective: Any) -> list[tuple[str, list[str], list[str]]]:
    """Of each row its anchor, positives, negatives."""
    assert isinstance(objective, OwnContrastiveObjective)
    examples, read = objective.examples, objective.store.read_text
    found = []
    for row in range(len(examples)):
        positives, negatives = ([read(n) for n in numbers] for numbers in objective.candidates(0, row))
        found.append((read(examples.anchors[row].item()), positives, negatives))
    return found


@torch.no_grad()
def similarities(encoder: Encoder, anchor: str, texts: list[str]) -> list[float]:
    query, *documents = encoder([Request(anchor, role="query"), *map(Request, texts)])
    return [float(query @ document) for document in documents]


def test_they_are_the_nearest_that_are_no_positives(
    mining: list[str], tiny: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of any row of the anchor; nor the anchor itself. The row's own negatives stay, before them."""
    with caplog.at_level("INFO"):
        objective = build_objective(settings_of(*mining))
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
    (cached,) = (tmp_path / "cache" / "negatives").iterdir()
    assert cached in objective.files
    own_data = settings_of(*mining).data.own.model_copy(update={"train": [str(cached)], "val": None})
    assert len(load_own(own_data).train), "it is a file of pairs itself"


def test_they_are_mined_once_for_the_same_content(
    mining: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = candidates(build_objective(settings_of(*mining)))
    cached = tmp_path / "cache" / "negatives"

    def mined_again(*_: Any, **__: Any) -> None:
        raise AssertionError("mined again")

    with monkeypatch.context() as patch:
        patch.setattr("sentence_transformers.util.mine_hard_negatives", mined_again)
        assert candidates(build_objective(settings_of(*mining))) == first
        with pytest.raises(AssertionError, match="mined again"):
            build_objective(settings_of(*mining, "data.negatives.num=2"))
    write_lines(tmp_path / "corpus.jsonl", [{"title": "A", "text": "cat sat."}, {"text": "Rain."}])
    changed = candidates(build_objective(settings_of(*mining)))
    assert "A cat sat." in changed[2][2]
    assert changed != first
    assert len(list(cached.iterdir())) == 2


def test_a_glossary_that_has_changed_in_its_place_mines_anew(mining: list[str], tmp_path: Path) -> None:
    glossary = tmp_path / "glossary.tsv"
    options = [*mining, f"model.glossary={glossary}"]
    for meaning in ("told the secret", "made a mess"):
        glossary.write_text(f"expression\tmeaning\nspill the beans\t{meaning}\n", encoding="utf-8")
        build_objective(settings_of(*options))
    assert len(list((tmp_path / "cache" / "negatives").iterdir())) == 2
    moved = glossary.rename(tmp_path / "moved.tsv")
    build_objective(settings_of(*mining, f"model.glossary={moved}"))
    assert len(list((tmp_path / "cache" / "negatives").iterdir())) == 2


def test_options_leave_texts_out(mining: list[str], tiny: Encoder) -> None:
    objective = build_objective(settings_of(*mining, "data.negatives.margin=0.0"))
    for anchor, own, negatives in candidates(objective)[2:]:
        positive, *others = similarities(tiny, anchor, [*own, *negatives])
        assert all(other <= positive + 1e-6 for other in others)
    nothing = build_objective(settings_of(*mining, "data.negatives.max_score=0.0"))
    assert [negatives for _, _, negatives in candidates(nothing)] == [[], ["She spilled the beans."], [], []]


def test_of_groups_no_text_of_the_same_meaning_is_taken(mining: list[str], tmp_path: Path) -> None:
    rows = [
        {"anchor": "It is pouring.", "positive": "Rain fell on the town.", "group": "rain", "meaning": "m"},
        {"anchor": "It drizzles.", "positive": "It rains.", "group": "rain", "meaning": "m"},
        {"anchor": "Rain check", "positive": "Later, then.", "group": "rain", "meaning": "other"},
    ]
    write_lines(tmp_path / "pairs.jsonl", rows)
    found = candidates(build_objective(settings_of(*mining, "data.negatives.num=9")))
    same = {"It is pouring.", "Rain fell on the town.", "It drizzles.", "It rains."}
    assert all(negatives and not same & {*negatives} for _, _, negatives in found[:2])
    assert "Rain fell on the town." in found[2][2]  # of the other meaning


@pytest.mark.parametrize("kind", ["own", "mixture"])
def test_a_check_reads_the_corpus_and_loads_no_model(
    mining: list[str], tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    without_weights = shutil.ignore_patterns("*.safetensors")
    model = f"model.path={shutil.copytree(tiny_path, tmp_path / 'model', ignore=without_weights)}"
    options = [*mining, model, "benchmark=[own_val]", "trainer.monitor=own_val/score"]
    if kind == "mixture":
        part = "data: {{train: {0}/pairs.jsonl, val: {0}/val.jsonl, negatives: {{corpus: {0}/corpus.jsonl}}}}"
        options = [
            *("+experiment=mixture", f"+objective.parts.p={{{part.format(tmp_path)}}}"),
            *("model=pretrained", model, "trainer.batch_size=4"),
        ]
    check_data(settings_of(*options))
    assert "mined when training starts" in capsys.readouterr().out
    write(tmp_path / "corpus.jsonl", '{"text": "A cat."}\n{"text": ""}\n')
    with pytest.raises(UserError, match=r"corpus\.jsonl[^\n]*\n.*row 2, field 'text'"):
        check_data(settings_of(*options))


def test_what_cannot_be_mined_is_said(
    mining: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="leave fewer than num=3"):
        settings_of(*mining, "data.negatives.range_max=2")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "datasets", None)
        with pytest.raises(UserError, match=r"idiomtune\[data\]"):
            build_objective(settings_of(*mining))
    with pytest.raises(UserError, match=r"data\.negatives\.corpus=.*nowhere"):
        build_objective(settings_of(*mining, "data.negatives.corpus=/nowhere.jsonl"))
    labelled = [{"text": text, "label": str(i // 2)} for i, text in enumerate(CORPUS)]
    write_lines(tmp_path / "pairs.jsonl", labelled)
    held_out = write_lines(tmp_path / "val2.jsonl", [{"text": "x", "label": "y"}])
    with pytest.raises(UserError, match="is for pairs, but the training data are sentences"):
        build_objective(settings_of(*mining, "data.val_share=0.2", f"data.val={held_out}"))
