"""Runs that learned nothing say so, wherever their scores are; what was not tested is not called better."""

import json
from pathlib import Path

import pytest

from tests.mistakes import PAIRS
from tests.own_data import write
from tests.tiny_runs import metrics, resume, train

pytestmark = pytest.mark.usefixtures("shown")


def own_run(folder: Path, tiny_path: Path, *options: str) -> Path:
    data = write(folder / "train.csv", PAIRS)
    defaults = ["+experiment=own", "device=cpu", f"data.train={data}", "data.val_share=0.25"]
    defaults += ["model=pretrained", f"model.path={tiny_path}", "eval.cache=false"]
    defaults += ["trainer.batch_size=12", "trainer.max_epochs=1", "trainer.learning_rate=1e-3"]
    train(folder / "run", [*defaults, *options])
    return folder / "run"


def warning_of(run: Path) -> str:
    (warning,) = json.loads((run / "scores.json").read_text(encoding="utf-8"))["meta"]["warnings"]
    return str(warning)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["forgetting.weight_interpolation=0"],
        ["trainer.learning_rate=1e-30", "forgetting.lora.rank=2"],
    ],
)
def test_unmoved_weights_are_reported_with_what_causes_it(
    tmp_path: Path, tiny_path: Path, options: list[str]
) -> None:
    run = own_run(tmp_path, tiny_path, *options)
    if "interpolation" in options[0]:  # a resumed run knows the untrained weights too
        resume(run, "trainer.max_epochs=2")
    assert "weights" in warning_of(run)
    assert options[0].partition("=")[0] in warning_of(run)
    for place in ("report.html", "best/README.md"):
        assert "are the untrained ones" in (run / place).read_text(encoding="utf-8")


@pytest.mark.slow
def test_scores_that_are_equal_in_all_digits_are_reported(tmp_path: Path, tiny_path: Path) -> None:
    warning = warning_of(own_run(tmp_path, tiny_path, "trainer.clip_norm=1e-30", "trainer.weight_decay=0.01"))
    assert "every score" in warning
    assert "trainer.clip_norm" in warning


@pytest.mark.slow
def test_empty_steps_are_counted_and_one_query_chooses_nothing(
    tmp_path: Path, tiny_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last batch of an epoch has one row, and no negatives: 48 rows and a batch of 47."""
    caplog.set_level("INFO")
    val = write(tmp_path / "val.csv", "question,answer,negative\nwho is it,who it is,nothing\n")
    two = ("trainer.batch_size=47", "trainer.max_epochs=2", "eval.per_query=true")
    run = own_run(tmp_path, tiny_path, f"data.val=[{val}]", *two)
    lines = [line for line in metrics(run) if "loss" in line]
    assert [line.get("empty_steps", 0) for line in lines] == [0, 1, 1, 2]
    assert [line["loss"] == 0 for line in lines] == [False, True, False, True]
    notes = json.loads((run / "scores.json").read_text(encoding="utf-8"))["meta"]["warnings"]
    assert any("2 of 4 steps learned nothing" in note and "trainer.batch_size" in note for note in notes)
    printed = capsys.readouterr().out + caplog.text
    assert "this score cannot choose a checkpoint" in printed
    assert "not tested" not in printed
