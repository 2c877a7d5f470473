"""Runs on a user's own data: they resume as they were, on the same data wherever it lies, and have a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.own_data import write
from tests.tiny_runs import resume, train
from train.errors import UserError
from train.hub.card import ask_for_licence, common_licence, sources_of
from train.training.run_folder import read_config

pytestmark = pytest.mark.slow


def pairs(number: int) -> str:
    return "anchor,positive\n" + "".join(f"what is {i}?,it is {i} and {i + 1}\n" for i in range(number))


def own_options(tiny_path: Path, data: Path) -> list[str]:
    """Two epochs of three steps."""
    return [
        *(
            "+experiment=own",
            f"data.train={data}",
            "device=cpu",
            "model=pretrained",
            f"model.path={tiny_path}",
        ),
        *("trainer.batch_size=10", "trainer.max_epochs=2", "trainer.learning_rate=1e-3"),
    ]


def test_a_run_resumes_on_data_that_has_moved(tmp_path: Path, tiny_path: Path) -> None:
    """On other contents it does not. The card names the file, and no licence follows."""
    data = write(tmp_path / "here" / "pairs.csv", pairs(30))
    best = train(tmp_path / "cut", own_options(tiny_path, data))
    moved = tmp_path / "there" / "pairs.csv"
    moved.parent.mkdir()
    data.rename(moved)
    other = write(tmp_path / "other" / "pairs.csv", pairs(31))
    with pytest.raises(UserError, match=r"pairs\.csv changed"):
        resume(tmp_path / "cut", f"data.train={other}")
    assert resume(tmp_path / "cut", f"data.train={moved}") == best

    scores = json.loads((tmp_path / "cut" / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores["own_val/score"] == scores["own_val/ndcg@10"] == best
    card = (tmp_path / "cut" / "best" / "README.md").read_text(encoding="utf-8")
    assert "the user's own data (pairs.csv)" in card
    assert str(moved.parent) not in card.partition("python -m train")[0]
    assert "idiom" not in card.partition("## Use")[0].lower()
    sources = sources_of(read_config(tmp_path / "cut"))
    assert common_licence(sources) is None
    assert "pairs.csv" in ask_for_licence(sources, "hub.license")
