"""The benchmark against the predecessor's way: it runs, both ways agree, a difference is an error."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.bench import ours, predecessor
from tests.bench.measure import useful_operations
from tests.bench.report import Run, disagreements, table
from tests.bench.workload import Workload
from tests.programs import run
from train.encoder import Encoder


@pytest.fixture(scope="module")
def workload(tiny_path: Path) -> Workload:
    return Workload("sample", model=str(tiny_path), steps=4, batch_size=8)


def test_both_ways_give_the_same_losses_and_scores(workload: Workload) -> None:
    mine, theirs = ours.run(workload), predecessor.run(workload)
    assert mine.losses == pytest.approx(theirs.losses, abs=1e-4)
    assert len(mine.losses) == 4
    near, problems = disagreements(mine, theirs, dropout=False)
    assert not problems
    assert "4 losses" in near
    assert "of 8 scores" in near
    runs = [Run(mine, 100.0, 1e9)], [Run(theirs, 200.0, 1e9)]
    assert "whole run" in table(*runs, 1e9, 1e9)

    other = dataclasses.replace(mine, losses=[*mine.losses[:-1], mine.losses[-1] + 0.01])
    assert "losses differ" in disagreements(other, theirs, dropout=False)[1][0]
    key = next(iter(theirs.scores))
    other = dataclasses.replace(mine, scores=mine.scores | {key: float("nan")})
    assert key in disagreements(other, theirs, dropout=False)[1][0]
    assert disagreements(dataclasses.replace(mine, losses=[]), theirs, dropout=True)[1]


def test_useful_operations_by_hand(tiny: Encoder) -> None:
    """Two layers of width 32: 4 · 32² + 2 · 32 · 64 weights each. "a b" has 4 tokens, and counts once."""
    model: SentenceTransformer = tiny.model
    linear, attention = 2 * 4 * 2 * (4 * 32**2 + 2 * 32 * 64), 4 * 2 * 4**2 * 32
    assert useful_operations(model, ["a b", "a b"]) == linear + attention


@pytest.mark.slow
def test_it_runs_as_a_program(workload: Workload) -> None:
    small = dataclasses.replace(workload, steps=1, threads=torch.get_num_threads())
    done = run("tests.bench", "--pairs=1", *small.arguments())
    assert done.returncode == 0, done.stderr
    assert "times as fast" in done.stdout
    assert "% of sgemm" in done.stdout
