"""A share of `python -m tools.faults`: operations that fail, files that are damaged."""

from __future__ import annotations

import errno
import math
import os
import shutil
from pathlib import Path

import pytest

from idiomtune import cli
from idiomtune.config.words import overrides_of
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.io.files import as_os_errors
from tools import faults
from tools.faults import CASES, DAMAGED, Counts
from tools.harmed import Harm

pytestmark = pytest.mark.slow

# Program → every how many of its operations one fails, and the first that does.
SHARE = {"train": (400, 250), "learn": (100, 60)}


@pytest.fixture
def counts() -> Counts:
    return Counts(deadline=math.inf)


def assert_harmed(counts: Counts, name: str, *kinds: str) -> None:
    assert not counts.failures, counts.failures
    assert sum(counts.outcomes[name][kind] for kind in kinds), counts.table()


@pytest.mark.parametrize("name", SHARE)
def test_operations_that_fail(name: str, tmp_path: Path, tiny_path: Path, counts: Counts) -> None:
    every, offset = SHARE[name]
    faults.fail_each(CASES[name](tmp_path / name, tiny_path), counts, every=every, offset=offset)
    assert_harmed(counts, name, "refused", "absorbed", "absorbed, and said")


def test_damaged_run(tmp_path: Path, tiny_path: Path, counts: Counts) -> None:
    """What is read of it: the best model for a report, what is resumed, and scored."""
    case = DAMAGED["run, reported"](tmp_path / "run", tiny_path)
    faults.damage_each(case, counts, every=23, offset=4)
    assert_harmed(counts, case.name, "refused", "the same, reported", "another result, reported")
    assert not counts.outcomes[case.name][faults.QUIET]
    case.fresh()
    (case.work / "run" / "metrics.jsonl").unlink()
    assert "metrics.jsonl is missing" in case.start(case.command, Harm())[0].output
    # The same run, whose best model and baseline are damaged.
    case.fresh()
    best, baseline = case.work / "run" / "best" / "model.safetensors", case.work / "run" / "baseline.json"
    faults.DAMAGES["flipped in the middle"](best)
    with pytest.raises(UserError, match=r"best/model\.safetensors"):
        overrides_of([f"model={case.work / 'run'}"], "train", "")
    overrides_of([f"model={best.parent}"], "train", "")  # the user says so
    baseline.write_text(baseline.read_text().replace("0.", "0.9", 1))
    ended, _ = case.start(["train", "resume=run"], Harm())
    assert ended.status == 0, ended.output
    assert "baseline.json" in ended.output
    overrides_of([f"model={case.work / 'run'}"], "train", "")


def test_damaged_models(tmp_path: Path, tiny_path: Path, counts: Counts) -> None:
    copy = shutil.copytree(tiny_path, tmp_path / "model")
    faults.damage_one_model(copy, tmp_path / "copy", counts, every=9, offset=3)
    assert_harmed(counts, faults.MODELS, "refused")
    (copy / "modules.json").unlink()  # transformers' own files alone would give other embeddings
    for path in (copy, tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match=r"modules\.json"):
            Encoder.from_pretrained(path, device="cpu")


def test_a_full_disk_in_the_middle_of_a_checkpoint_leaves_the_last_one_and_says_what_is_needed(
    tmp_path: Path, tiny_path: Path
) -> None:
    case = CASES["resume"](tmp_path / "resume", tiny_path)
    case.fresh()
    harm = Harm(at="write run/.step_2/optimizer.safetensors", how="raise", error="ENOSPC")
    ended, _ = case.start(case.command, harm)
    assert ended.status == 2
    for part in ("run/step_2", "No space left on device", "3 MiB", "run/step_1"):
        assert part in ended.output
    assert [path.name for path in (case.work / "run").glob("*step_*")] == ["step_1"]


def test_failures_of_disk_and_memory_are_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    errors: list[tuple[Exception, str]] = [
        (OSError(errno.EIO, os.strerror(errno.EIO), "a"), "file"),
        (InterruptedError(errno.EINTR, "Interrupted system call"), "file"),
        (MemoryError(), "memory"),
        (RuntimeError("CUDA out of memory"), "memory"),
    ]
    for error, kind in errors:
        assert cli.report_error(error) == cli.MISTAKE
        message = capsys.readouterr().err.lower()
        assert message.startswith("error: ")
        assert kind in message
        assert not [part for part in ("unexpected", "traceback") if part in message]


def test_errors_of_libraries_in_rust_are_those_of_the_system() -> None:
    with pytest.raises(OSError, match="No space") as caught, as_os_errors():
        raise Exception("No space left on device (os error 28)")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(ValueError, match="wrong"), as_os_errors():
        raise ValueError("wrong")
