"""`idiomtune check`: what training would say of its configuration and data, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from idiomtune.config import TrainSettings, validate
from idiomtune.programs.check import check as check_data
from tests.own_data import write
from tests.programs import refused, run
from tests.tiny_runs import composed

PAIRS = "question,answer,note\n" + "".join(f"what is {i}?,it is {i},x\n" for i in range(40))


@pytest.mark.slow
def test_what_a_run_would_do_is_printed(tmp_path: Path) -> None:
    """Files, columns, what is held out, steps, what is scored; with the options of a run, its folder too."""
    write(tmp_path / "pairs.csv", PAIRS)
    options = ("+experiment=own", "data.train=pairs.csv", "trainer.batch_size=10", "run_dir=runs/x")
    done = run("idiomtune", "check", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in (
        *("question as anchor", "answer as positive", "note", "4 of 40 rows", "data.val_share=0.1"),
        *("36 anchors", "40 rows of data.train", "trainer.max_epochs=60", "own_val/score"),
        *("files: pairs.csv", "4 steps an epoch, 60 epochs", "benchmark own_val: 8 texts"),
    ):
        assert part in done.stdout + done.stderr
    shown = run("idiomtune", "check", *options, "--cfg", "job", cwd=tmp_path)  # a flag after the options
    assert (shown.returncode, "\n  batch_size: 10\n" in shown.stdout) == (0, True), shown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


def test_three_rows_are_shown_as_they_are_trained(
    tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each part of a mixture too."""
    pairs = write(tmp_path / "pairs.csv", PAIRS)
    marked = "".join(f"He <b>ran {i}</b>.,{'lit' if i % 2 else 'fig'},g{i // 8}\n" for i in range(40))
    marked_path = write(tmp_path / "marked.csv", f"text,usage,idiom\n{marked}")
    options = ("+objective.parts.a.data.train=", "+objective.parts.b.data.train=")
    files = [f"{option}{path}" for option, path in zip(options, (pairs, marked_path), strict=True)]
    model = (f"model.path={tiny_path}", "device=cpu", "precision=fp32")
    check_data(validate(TrainSettings, composed("train", "+experiment=mixture", *files, *model)))
    lines = [line for line in capsys.readouterr().out.splitlines() if "trained as" in line]
    assert len(lines) == 6
    assert all("anchor 'what is" in line and "positive 'it is" in line for line in lines[:3])
    assert all("'He [ran" in line and "group g" in line and "meaning " in line for line in lines[3:])


def check_files(*options: str) -> None:
    settings: TrainSettings = validate(TrainSettings, composed("train", *options))
    settings.objective.check_files(settings.data)


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        (PAIRS, ["data.val=none.csv"], ["data.val=none.csv"]),
        (PAIRS, ["data.negatives={number: 2, corpus: none.csv}"], ["data.negatives.corpus=none.csv"]),
        (PAIRS.replace("answer", "anwser"), [], ["pairs.csv", "'anwser' (is it 'answer'?)"]),
        (PAIRS.replace("it is 0", ""), [], ["pairs.csv", "row 2", "'answer'"]),
        (PAIRS, ["data.columns={anchor: titel}"], ["pairs.csv", "'titel'"]),
    ],
)
def test_slips_that_a_files_head_shows_are_named_at_once(
    in_folder: Path, content: str, options: list[str], named: list[str]
) -> None:
    """Of a mixture's part by the part's options."""
    write(in_folder / "pairs.csv", content)
    part = "objective.parts.p"
    moved = [f"+{part}.data.train=pairs.csv", *(f"++{part}.{option}" for option in options)]
    refused(lambda: check_files("+experiment=own", "data.train=pairs.csv", *options), *named)
    refused(lambda: check_files("+experiment=mixture", *moved), part, *named)


def test_no_more_than_the_head_is_read(in_folder: Path) -> None:
    """And data sets of the Hub are not asked for; a file is needed."""
    write(in_folder / "pairs.csv", f"{PAIRS}who?,,x\n")
    check_files("+experiment=own", "data.train=[pairs.csv,'hf:someone/nowhere:train']")
    refused(lambda: check_files("+experiment=own"), "data.train")


def test_batches_without_a_positive_are_refused_also_after_epochs_of_pairs(tiny_path: Path) -> None:
    options = [f"model.path={tiny_path}", "data=sample", "benchmark=[idiolink]", "trainer.batch_size=8"]
    options += ["objective.single_positive_every=2", "device=cpu", "precision=fp32"]
    settings = validate(TrainSettings, composed("train", "+experiment=idiolink_ft", *options))
    refused(lambda: check_data(settings), "trainer.batch_size", "objective.idioms_per_batch")
