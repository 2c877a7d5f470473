"""The program, cut short from outside: by SIGKILL, and by a disk that is full."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.programs import ROOT, assert_explained, program_env, run
from tests.tiny_runs import assert_same_run, metrics
from tests.warm import Program
from tests.warm import run as warm_run

SEED = 7
_SMALL = 100  # bytes: less than any file of a run has
_MODEL = 2**20  # less than the tiny model's weights, more than any other file


def _start(*arguments: str) -> Program:
    with Path(os.devnull).open("r+b") as nowhere:
        return Program(["-m", "train", *arguments], cwd=ROOT, env=program_env(), streams=[nowhere] * 3)


def _kill_once(process: Program, folder: Path, steps: int, draw: random.Random) -> None:
    """At a random moment after so many steps."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "metrics.jsonl").exists() and len(_steps(folder)) >= steps:
            break
        time.sleep(0.01)
    time.sleep(draw.uniform(0, 0.3))
    process.kill()
    assert process.wait() == -9, "it ended before it was killed"


def _steps(folder: Path) -> list[bytes]:
    return [line for line in (folder / "metrics.jsonl").read_bytes().splitlines() if b'"loss"' in line]


def _assert_says_full(argument: str, size: int, *parts: str) -> None:
    """Where no file can grow beyond a size, it says in one message that the disk is full."""
    full = warm_run(["-m", "train", argument], cwd=ROOT, env=program_env(), timeout=300, file_size=size)
    assert_explained(full, "File too large", *parts)
    assert full.returncode == 2
    assert full.stderr.count("File too large") == 1
    assert "Logging error" not in full.stderr


@pytest.mark.slow
def test_killed_twice_then_out_of_space_it_still_ends_as_uninterrupted(
    tmp_path: Path, tiny_path: Path
) -> None:
    """Bit for bit, each start in a process of its own; the full disk is said in one message."""
    options = [
        *("+experiment=idiolink_ft", "data=sample", "device=cpu", f"model={tiny_path}"),
        *(
            "trainer.batch_size=4",
            "objective.idioms_per_batch=2",
            "trainer.max_epochs=1",
            "trainer.patience=null",
            "eval.every=10",
        ),
        *("benchmark=[idiolink]", "benchmark.idiolink.bm25_modes=[]"),
        "benchmark.idiolink.query_modes=[sentence,span]",
    ]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = run("train", *options, f"run_dir={whole}")
    assert done.returncode == 0, done.stderr
    num_steps = len(_steps(whole))
    assert num_steps == 36

    draw = random.Random(SEED)
    _kill_once(_start(*options, f"run_dir={cut}"), cut, 12, draw)
    assert len(_steps(cut)) < num_steps
    before = len(_steps(cut))
    _kill_once(_start(f"resume={cut}"), cut, before + 2, draw)

    newest = max(int(path.name[5:]) for path in cut.glob("step_*"))
    last = f"The last complete checkpoint: {cut}/step_{newest}"
    _assert_says_full(f"run_dir={tmp_path / 'new'}", _SMALL, "error: a file could not be read or written")
    _assert_says_full(
        f"resume={cut}", _SMALL, "error: a file could not be read or written", "config.yaml", "step_"
    )
    _assert_says_full(f"resume={cut}", _MODEL, "error: could not save the checkpoint", last)
    assert not list(cut.glob(".step_*"))

    done = run("train", f"resume={cut}")
    assert done.returncode == 0, done.stderr
    assert f"resuming from {cut}/step_{newest}" in done.stderr
    assert_same_run(whole, cut)
    assert len(metrics(cut)) > num_steps
