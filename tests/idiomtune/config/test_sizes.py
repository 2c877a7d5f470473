"""Defaults that depend on how many rows there are to train on."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from idiomtune.config import TrainSettings, validate
from idiomtune.config.compose import compose_config, resolve_by_data_size
from tests.own_data import write, write_pairs

FEW, MORE = (128, None, "end"), (64, 3, "epoch")  # batch size, patience, when a run is scored


def chosen(*overrides: str) -> tuple[Any, ...]:
    config = compose_config("train", "+experiment=own", *overrides)
    validate(TrainSettings, config)
    trainer = config["trainer"]
    assert not any(isinstance(value, dict) for value in trainer.values()), "so it is recorded"
    return trainer["batch_size"], trainer["patience"], config["eval"]["every"]


def test_few_rows_have_defaults_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of all files and folders count together, and one line says what was chosen."""
    caplog.set_level("INFO")
    few = write_pairs(tmp_path / "few" / "1.csv", 300)
    assert chosen(f"data.train={few}") == FEW
    assert "300 rows of data.train, so by default trainer.batch_size=128, " in caplog.text
    assert "trainer.patience=null, eval.every=end" in caplog.text
    assert chosen(f"data.train=[{few},{write_pairs(tmp_path / 'more.csv', 201)}]") == MORE
    assert "more than 500 rows of data.train, so by default trainer.batch_size=64" in caplog.text
    packed = few.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(few.read_bytes()))
    assert chosen(f"data.train={few.parent}") == MORE
    assert chosen("data.train=hf:someone/something:train") == MORE
    assert chosen(f"data.train={packed}", "trainer.batch_size=16", "eval.every=5") == (16, None, 5)
    write(few, "a\n")  # what is wrong with a file is reported when it is read
    assert chosen(f"data.train={few}") == FEW


@pytest.mark.parametrize(("num", "expected"), [(24, 1), (25, 2), (31, 3)])
def test_the_smallest_size_that_suffices_counts(tmp_path: Path, num: int, expected: int) -> None:
    own = {"max_epochs": {30: 2, 24: 1, "more": 3}, "seed": 5}
    config = {"data": {"train": str(write_pairs(tmp_path / "t.csv", num))}, "trainer": own}
    assert resolve_by_data_size(config)["trainer"] == {"max_epochs": expected, "seed": 5}
