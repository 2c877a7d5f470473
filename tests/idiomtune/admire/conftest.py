"""Tiny models of the published classes, and scorers and objectives by the options of `conf/`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiomtune.config import TrainSettings, validate
from idiomtune.training.objective import build_objective
from tests.tiny_bart import save_tiny_bart
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import composed

Build = Callable[..., Any]
CV = ["+protocol=cross_validation_admire", "data.fold=0"]


@pytest.fixture(scope="session")
def clip_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def bart_path(tmp_path_factory: pytest.TempPathFactory, minilm_path: str) -> Path:
    return save_tiny_bart(tmp_path_factory.mktemp("bart"), minilm_path)


@pytest.fixture(scope="session")
def admire_options(experts_options: list[str]) -> list[str]:
    """Two epochs of four steps on all of the sample's items."""
    return [option for option in experts_options if option not in CV]


@pytest.fixture(scope="session")
def aima_options(tiny_path: Path, clip_path: Path, bart_path: Path) -> list[str]:
    """Two epochs, of sentences of one file, in which captions are summarised."""
    bert = tiny_path.parent / "bert"  # a plain one: its [CLS] is not normalised
    return [
        *("+experiment=admire_aima", "data=sample", "benchmark=[admire]", "device=cpu", "eval.cache=false"),
        *(f"model.path={bert}", f"objective.sense_encoder.path={bert}", f"objective.clip.path={clip_path}"),
        *(f"objective.captions.summariser={bart_path}", "objective.captions.words=6"),
        *("objective.astitch=[train_one_shot]", "trainer.max_epochs=2", "trainer.learning_rate=1e-3"),
    ]


@pytest.fixture(autouse=True)
def _one_cache_of_summaries(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To summarise the sample's captions takes longer than most tests."""
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path_factory.getbasetemp() / "summaries"))


@pytest.fixture
def build(admire_options: list[str], request: pytest.FixtureRequest) -> Build:
    """The objective `admire`, or `aima`, with further options; its scorer is `modules`."""

    def objective(*more: str, system: str = "admire") -> Any:
        chosen = admire_options if system == "admire" else request.getfixturevalue("aima_options")
        return build_objective(validate(TrainSettings, composed("train", *chosen, *more)))

    return objective
