"""`python -m train.check`: what training would say of its configuration and data, and nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.own_data import write
from tests.programs import ROOT, assert_explained, run
from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.errors import UserError

PAIRS = "question,answer,note\n" + "".join(f"what is {i}?,it is {i},x\n" for i in range(40))


@pytest.mark.slow
def test_what_a_run_would_do_is_said(tmp_path: Path) -> None:
    """Files, columns, what is held out, steps, what is scored; with the options of a run, its folder too."""
    write(tmp_path / "pairs.csv", PAIRS)
    done = run(
        *(
            "train.check",
            "+experiment=own",
            "data.train=pairs.csv",
            "trainer.batch_size=10",
            "run_dir=runs/x",
        ),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for part in (
        *("pairs.csv: pairs", "question as anchor", "answer as positive", "left out: note"),
        *(
            "held out: 4 of 40 rows",
            "data.val_share=0.1",
            "files: pairs.csv",
            "36 anchors; queries as sentence",
        ),
        *("4 steps an epoch, 3 epochs", "benchmark own_val: 8 texts"),
    ):
        assert part in said, said
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


@pytest.mark.slow
def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """Options first, all together; then the data, by file and row; a run that cannot be monitored."""
    write(tmp_path / "pairs.csv", PAIRS + "who?,,x\n")
    wrong = run("train.check", "+experiment=own", "data.val_share=2", "trainer.batch_size=0", cwd=tmp_path)
    assert_explained(wrong, "data.val_share", "trainer.batch_size")
    spoiled = run("train.check", "+experiment=own", "data.train=pairs.csv", cwd=tmp_path)
    assert_explained(spoiled, "pairs.csv", "row 42", "'answer'", "empty")
    none = run("train.check", "+experiment=own", cwd=tmp_path)
    assert_explained(none, "data.train", "CSV")
    loss = run("train.check", "+experiment=own", "data.train=good.csv", "objective.loss=cosent", cwd=tmp_path)
    assert_explained(loss, "data.train=good.csv", "no such file")
    assert {done.returncode for done in (wrong, spoiled, none, loss)} == {2}
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


@pytest.mark.slow
def test_flags_may_come_after_the_options(tmp_path: Path) -> None:
    shown = run("train.check", "+experiment=own", "data.train=x.csv", "--cfg", "job", cwd=tmp_path)
    assert (shown.returncode, "max_epochs: 3" in shown.stdout) == (0, True), shown.stderr
    assert not [*tmp_path.iterdir()]


def check_files(*options: str) -> None:
    settings: TrainSettings = check(TrainSettings, composed("config", *options))
    settings.objective.check_files(settings)


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        (PAIRS, ["data.train=none.csv"], ["data.train=none.csv"]),
        (PAIRS, ["data.val=none.csv"], ["data.val=none.csv"]),
        (PAIRS, ["data.negatives.corpus=none.csv"], ["data.negatives.corpus=none.csv"]),
        (PAIRS.replace("answer", "anwser"), [], ["pairs.csv", "'anwser' (is it 'answer'?)"]),
        (PAIRS.replace("it is 0", ""), [], ["pairs.csv", "row 2", "'answer'"]),
        (PAIRS, ["data.columns={anchor: titel}"], ["pairs.csv", "'titel'"]),
        (PAIRS, ["data.columns={weight: wieght}"], ["pairs.csv", "'wieght'"]),
    ],
)
def test_slips_that_a_files_head_shows_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, options: list[str], named: list[str]
) -> None:
    """Of a mixture's part by the part's options."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pairs.csv", content)
    with pytest.raises(UserError) as told:
        check_files("+experiment=own", "data.train=pairs.csv", *options)
    assert all(part in str(told.value) for part in named), told.value
    part = "objective.parts.p"
    moved = [f"++{part}.{option}" for option in options]
    with pytest.raises(UserError) as told:
        check_files("+experiment=mixture", f"+{part}.data.train=pairs.csv", *moved)
    assert part in str(told.value)
    assert all(text in str(told.value) for text in named), told.value


def test_no_more_than_the_head_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And data sets of the Hub are not asked for."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pairs.csv", f"{PAIRS}who?,,x\n")
    check_files("+experiment=own", "data.train=[pairs.csv,'hf:someone/nowhere:train']")


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["data.train=none.csv"]])
def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path, options: list[str]) -> None:
    """And is told of it before torch is imported."""
    timed = {"PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": str(ROOT)}  # each import is named on stderr
    done = run("train", "+experiment=own", *options, cwd=tmp_path, environment=timed, cold=True)
    assert_explained(done, "data.train")
    assert done.returncode == 2
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "pydantic" in imported
    assert "torch" not in imported
    assert not list(tmp_path.iterdir())
