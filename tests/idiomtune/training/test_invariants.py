"""What must hold in every training: the checks change nothing, and name what is wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.config import ModelSettings, TrainSettings, check
from idiomtune.config.sections import INVARIANTS
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.parallel import ParallelEncoder
from idiomtune.encoder.parity import compare_loaded, compare_saved
from idiomtune.errors import InvariantError, UserError
from idiomtune.objectives import Batch, ObjectiveLoss
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.training.invariants import Invariants
from tests.programs import ROOT
from tests.tiny_families import FAMILIES, tiny_checkpoint
from tests.tiny_runs import WholeRun, composed, metrics, train
from tools.planted import ERRORS
from tools.planted import __main__ as planted

Patch = pytest.MonkeyPatch
Plants = Callable[..., str]
OFF = "trainer.invariants=false"


def test_checks_are_chosen_by_name_or_left_out() -> None:
    """Each says what must hold, and what it may mean if it does not."""
    for name in {*INVARIANTS} - {"parity"}:
        assert ". " in " ".join(str(getattr(Invariants, name).__doc__).split()), name
    chosen = {"true": {*INVARIANTS}, "false": set(), "[loss,rows]": {"loss", "rows"}}
    chosen |= {"[-loss,-rows]": {*INVARIANTS} - {"loss", "rows"}}
    for value, names in chosen.items():
        trainer = check(TrainSettings, composed("config", f"trainer.invariants={value}")).trainer
        assert {name for name in INVARIANTS if trainer.checks(name)} == names, value


def test_a_checked_run_is_the_same_bit_for_bit(
    tmp_path: Path, options: list[str], whole_run: WholeRun
) -> None:
    train(tmp_path / "unchecked", [*options, OFF])
    checked = whole_run(options)
    assert metrics(tmp_path / "unchecked") == metrics(checked)
    a, b = (json.loads((folder / "run.json").read_text()) for folder in (checked, tmp_path / "unchecked"))
    assert a["parity"] < 1e-5
    assert a["parity_saved"] < 1e-5
    assert "parity" not in b
    card = (checked / "best" / "README.md").read_text()
    assert "On eight texts (one of them a span) sentence-transformers and the code" in card


def test_what_is_wrong_is_said_with_its_switch(
    tmp_path: Path, options: list[str], monkeypatch: Patch
) -> None:
    """The run ends before the step is taken, and goes on where the check is switched off."""
    real = ContrastiveObjective.loss

    def loss(self: ContrastiveObjective, embeddings: torch.Tensor, batch: Batch) -> ObjectiveLoss:
        return real(self, embeddings.detach() + 0 * embeddings, batch)

    monkeypatch.setattr(ContrastiveObjective, "loss", loss)
    with pytest.raises(InvariantError) as caught:
        train(tmp_path / "run", options)
    assert all(named in str(caught.value) for named in ("step 1: ", "- loss: ", "trainer.invariants=[-loss]"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


SCALES = [(1e-9, 1e9), (1e9, 1.0), (1.0, 1e-9)]


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize(("of_loss", "of_rows"), SCALES)
def test_verdicts_do_not_depend_on_scale(
    tmp_path: Path, options: list[str], monkeypatch: Patch, is_wrong: bool, of_loss: float, of_rows: float
) -> None:
    """A loss, or rows, times 1e-9 or 1e9 are as right, or as wrong."""
    real, run_batches = ContrastiveObjective.loss, ParallelEncoder.run

    def loss(self: ContrastiveObjective, embeddings: torch.Tensor, batch: Batch) -> ObjectiveLoss:
        result = real(self, embeddings, batch)
        more = 0.5 * result.loss.detach() * embeddings.sum() / embeddings.detach().sum() if is_wrong else 0.0
        return replace(result, loss=of_loss * (result.loss + more))  # `more` has a gradient that no value has

    def scaled(self: ParallelEncoder, *arguments: Any, **named: Any) -> list[torch.Tensor]:
        return [of_rows * piece for piece in run_batches(self, *arguments, **named)]

    monkeypatch.setattr(ContrastiveObjective, "loss", loss)
    monkeypatch.setattr(ParallelEncoder, "run", scaled)
    more = [*options, "trainer.max_steps=2", "eval.every=end"]
    if is_wrong:
        with pytest.raises(InvariantError, match=r"trainer\.invariants=\[-loss\]"):
            train(tmp_path / "run", more)
    else:
        train(tmp_path / "run", more)
        assert "trainer.invariants" not in (tmp_path / "run" / "train.log").read_text()


def test_a_saved_model_that_embeds_otherwise_is_named(tiny: Encoder, tmp_path: Path) -> None:
    settings = ModelSettings.model_validate(composed("config")["model"])
    tiny.save(tmp_path)
    assert (compare_saved(tiny, tmp_path, settings) or 1) < 1e-5
    tiny.prompts = type(tiny.prompts)(query="query: ")
    with pytest.raises(UserError, match=r"'The train left the station at nine.' \(query, sentence\)"):
        compare_saved(tiny, tmp_path, settings)


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_loaded_models_that_libraries_read_otherwise_are_compared_as_they_are_read(
    family: str, tmp_path: Path
) -> None:
    """RoBERTa counts fewer positions than its tokenizer promises."""
    path = tiny_checkpoint(FAMILIES[family], tmp_path)
    settings = ModelSettings.model_validate(composed("config")["model"] | {"path": str(path)})
    assert compare_loaded(Encoder.load(settings, device="cpu"), settings) < 1e-5


@pytest.fixture
def plants(monkeypatch: Patch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plants:
    """`python -m tools.planted` with such options: what it prints, if it finds all to be right."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def printed(*options: str) -> str:
        status = planted.main(options)
        text = capsys.readouterr().out
        assert status == 0, text
        return text

    return printed


@pytest.mark.slow
@pytest.mark.parametrize(("first", "number", "trained"), [(0, 8, 6), (30, 8, 6), (519, 1, 1)])
def test_no_check_ends_a_sound_run(plants: Plants, first: int, number: int, trained: int) -> None:
    """Those that `make honest` makes; of 519 rounding decides the gradient, at a temperature of .001."""
    printed = plants("--honest", str(number), "--first", str(first))
    assert f"0 alarms in {number} honest runs" in printed
    assert f"'trained': {trained}" in printed


def test_every_planted_error_has_its_place() -> None:
    lost = [e.name for e in ERRORS if (ROOT / e.file).read_text(encoding="utf-8").count(e.old) != 1]
    assert lost == []


@pytest.mark.slow
def test_planted_errors_are_named(plants: Plants) -> None:
    """A share of them; `make planted` plants all."""
    assert "3 of 3 errors were named" in plants("--every", "20")
