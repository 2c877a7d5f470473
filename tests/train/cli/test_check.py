"""`python -m train.check`: what training would say of its configuration and data, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_data import write
from tests.programs import assert_explained, run

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
