"""Tokens and passwords are refused before anything is recorded, and not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import ROOT, run
from train.config.validation import refuse_arguments, refuse_values
from train.errors import UserError

TOKEN = "hf_" + "aB3" * 12


@pytest.mark.parametrize(
    "argument",
    [
        f"hub.token={TOKEN}",
        f"+token={TOKEN}",
        f"+hydra.job.env_set.HF_TOKEN={TOKEN}",
        "+hydra.job.env_set.ANYTHING=x",
        "model.path=https://me:pa55word@example.org/model",
        "hub.repo_id=${oc.env:HF_TOKEN}",
        "+x=${oc.env:'WANDB_API_KEY'}",
        f"seed={TOKEN}",
        "tracking.wandb.project=the-secret-value",
        "hydra.sweeper.storage=mysql://me:pa55word@db/study",
    ],
)
def test_secrets_are_refused_and_not_shown(argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "the-secret-value")
    with pytest.raises(UserError) as refused:
        refuse_arguments([argument])
    said = str(refused.value)
    assert argument.lstrip("+").partition("=")[0] in said
    assert "HF_TOKEN" in said
    for secret in (TOKEN, "pa55word", "the-secret-value"):
        assert secret not in said


@pytest.mark.parametrize(
    "argument",
    [
        *("model.tokenizer=x", "trainer.max_steps=3", "model.idiom_tokens=train", "run_dir=/a/token"),
        *("model.path=https://example.org/model", "+x=${oc.env:HOME}", "model.revision=" + "0a" * 20),
    ],
)
def test_other_options_pass(argument: str) -> None:
    refuse_arguments([argument])


def test_a_configuration_file_of_the_users_own_is_looked_at_too() -> None:
    with pytest.raises(UserError, match=r"model\.path"):
        refuse_values({"model": {"path": [TOKEN]}})
    refuse_values({"model": {"path": "a/b", "n": 3, "none": None}})


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UserError, match=r"run_dir.*UTF-8"):
        refuse_arguments(["run_dir=\udcff"])


@pytest.mark.slow
def test_nothing_of_it_is_left_on_disk(tmp_path: Path) -> None:
    done = run("train", f"+hub.token={TOKEN}", cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert TOKEN not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []
