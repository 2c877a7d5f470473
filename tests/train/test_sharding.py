"""Sharded weights: two processes with half a model each compute, score and save what one computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests import process_jobs
from tests.launches import Launches
from tests.train.test_processes import SHORT, assert_close, of_experiment


@pytest.fixture(scope="module")
def launches() -> Iterator[Launches]:
    started = Launches()
    yield started
    started.close()


@pytest.mark.parametrize("name", ["idiolink", "adaptive_triplet"])
def test_gradients_are_those_of_one_process(
    launches: Launches, tiny_path: Path, tmp_path: Path, name: str
) -> None:
    """With dropout, masked negatives or mined triplets, in equal and unequal numbers of passes."""
    options = of_experiment(name, tiny_path)
    process_jobs.gradients(options, str(tmp_path / "one"))
    one = load_file(tmp_path / "one")
    for caching, own in ((False, []), (True, []), (False, ["trainer.activation_checkpointing=true"])):
        ended = launches(
            2,
            "tests.process_jobs:gradients",
            options=[*options, *own],
            output=str(tmp_path / "two"),
            caching=caching,
            sharded=True,
        )
        assert [status for status, _ in ended] == [0, 0], ended
        assert_close(load_file(tmp_path / "two"), one)


def test_a_process_without_texts_keeps_the_others_company(
    launches: Launches, tiny_path: Path, tmp_path: Path
) -> None:
    """One pass a step: two of three processes have nothing to embed."""
    options = [o for o in of_experiment("idiolink", tiny_path) if o != SHORT]
    options += ["model.tokens_per_forward=100000", "trainer.batch_size=2"]
    process_jobs.gradients(options, str(tmp_path / "one"))
    ended = launches(
        3, "tests.process_jobs:gradients", options=options, output=str(tmp_path / "three"), sharded=True
    )
    assert [status for status, _ in ended] == [0, 0, 0], ended
    assert_close(load_file(tmp_path / "three"), load_file(tmp_path / "one"))
