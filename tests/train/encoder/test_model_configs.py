"""The models by name: each config is valid, the help lists them, docs/models.md says what they are."""

from __future__ import annotations

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.model_table import TABLE, configs, table
from tests.tiny_runs import composed
from train.config import EvaluateSettings, check
from train.config.compose import config_names, register_resolvers
from train.encoder.prompts import Prompts
from train.errors import UserError

NAMES = [name for name in config_names("model") if name != "pretrained"]
NEEDS_CODE = ["nemotron_8b", "nomic_v2_moe", "stella_1_5b"]


@pytest.fixture(scope="module")
def evaluation() -> dict[str, Any]:
    return composed("evaluate")


@pytest.mark.filterwarnings("ignore:.*Defaults list is missing:UserWarning")  # only where it comes first
@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_valid(name: str, evaluation: dict[str, Any]) -> None:
    # What model=<name> puts there, without composing all else anew.
    section = composed(f"model/{name}")["model"]
    assert section["trust_remote_code"] is False
    section["trust_remote_code"] = name in NEEDS_CODE
    model = check(EvaluateSettings, {**evaluation, "model": section}).model
    assert model.about is not None
    assert model.revision is None or re.fullmatch(r"[0-9a-f]{40}", model.revision)
    assert set(model.about.papers) <= {"IdioLink", "adaptive triplet", "ε-compositionality"}
    if model.instruction_prompt is not None:
        Prompts(instruction=model.instruction_prompt)


@pytest.mark.parametrize("name", NEEDS_CODE)
def test_code_that_a_model_needs_is_asked_for(name: str) -> None:
    with pytest.raises(UserError, match=r"needs the Python code .* model\.trust_remote_code=true runs it"):
        check(EvaluateSettings, composed("evaluate", f"model={name}"))


def test_all_of_two_papers_models_are_there() -> None:
    papers = [paper for config in configs().values() for paper in config["about"]["papers"]]
    assert papers.count("IdioLink") == 24
    assert papers.count("adaptive triplet") == 3


def test_the_help_lists_them_in_readable_lines() -> None:
    register_resolvers()
    text: str = OmegaConf.create({"models": "  model=         ${models:}"}).models
    assert all(len(line) <= 125 for line in text.splitlines())
    assert text.removeprefix("  model=").replace("\n", " ").split() == " | ".join(NAMES).split()


def test_the_page_is_what_the_configs_say() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "run python -m tests.model_table"
