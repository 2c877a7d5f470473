"""The program, killed and where the disk is full: one message, and nothing is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.programs import ROOT, assert_explained, program_env, run
from tests.tiny_runs import assert_same_run
from tests.warm import Program
from tests.warm import run as warm_run

_SMALL = 100  # bytes: less than any file of a run has
_MODEL = 2**20  # less than the tiny model's weights, more than any other file


@pytest.mark.slow
def test_killed_and_then_out_of_space_it_still_ends_as_uninterrupted(tmp_path: Path, tiny_path: Path) -> None:
    """Bit for bit, each start in a process of its own; the full disk is reported in one message."""
    options = [
        *("+experiment=idiolink_ft", "data=sample", "device=cpu", f"model={tiny_path}"),
        *("trainer.batch_size=4", "objective.idioms_per_batch=2", "trainer.max_epochs=1"),
        *("trainer.patience=null", "eval.every=10", "benchmark=[idiolink]"),
        *("benchmark.idiolink.bm25_modes=[]", "benchmark.idiolink.query_modes=[sentence,span]"),
    ]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = run("train", *options, f"run_dir={whole}")
    assert done.returncode == 0, done.stderr

    command = ["-m", "train", *options, f"run_dir={cut}"]
    with Path(os.devnull).open("r+b") as nowhere:
        process = Program(command, cwd=ROOT, env=program_env(), streams=[nowhere] * 3)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not list(cut.glob("step_*")):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9, "it ended before it was killed"

    newest = max(cut.glob("step_*"), key=lambda path: int(path.name[5:]))
    unwritten = "error: a file could not be read or written"
    for argument, size, parts in (
        (f"run_dir={tmp_path / 'new'}", _SMALL, [unwritten]),
        (f"resume={cut}", _SMALL, [unwritten, "config.yaml", "step_"]),
        (
            f"resume={cut}",
            _MODEL,
            ["could not save the checkpoint", f"The last complete checkpoint: {newest}"],
        ),
    ):
        full = warm_run(["-m", "train", argument], cwd=ROOT, env=program_env(), timeout=300, file_size=size)
        assert_explained(full, "File too large", *parts)
        assert full.returncode == 2
        assert full.stderr.count("File too large") == 1
        assert "Logging error" not in full.stderr
    assert not list(cut.glob(".step_*"))

    done = run("train", f"resume={cut}")
    assert done.returncode == 0, done.stderr
    assert f"resuming from {newest}" in done.stderr
    assert_same_run(whole, cut)
