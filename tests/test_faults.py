"""File operations that fail, and damaged files: one message, nothing half-written, the same in the end.

A few of a run's operations and of each file's damages; `make faults` tries all of them, in hours.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from idiomtune import Encoder, cli
from idiomtune.config.words import overrides_of
from idiomtune.errors import UserError
from idiomtune.io.files import as_os_errors
from idiomtune.io.run_files import checkpoints, verify
from tests.faults import ERRORS, NO_FAULT, Fault, Outcome, started
from tests.tiny_runs import assert_same_run, files_of, train

pytestmark = pytest.mark.slow

# The first that is tried, and every how many.
FIRST, EVERY = (1, 1) if os.environ.get("ALL_FAULTS") else (None, None)


@pytest.fixture(scope="module")
def short(options: list[str]) -> list[str]:
    """Two steps, scored and saved once."""
    return [*options, "trainer.max_steps=2", "eval.every=2"]


@pytest.fixture(scope="module")
def finished(short: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run."""
    folder = tmp_path_factory.mktemp("finished")
    train(folder / "run", short)
    return folder


def assert_one_message(ended: Outcome) -> None:
    messages = re.findall(r"^(?:error|interrupted)\b.*", ended.output, re.MULTILINE)
    assert len(messages) == 1, ended.output[-1500:]
    assert not re.search(r"Traceback \(most recent|unexpected", ended.output), ended.output[-1500:]


def assert_nothing_half_written(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            json.loads(path.read_bytes())
    assert all(verify(path) is None for path in checkpoints(folder / "run"))


def assert_same(whole: Path, again: Path) -> None:
    assert_same_run(whole / "run", again / "run")
    assert {path.name for path in files_of(whole)} == {path.name for path in files_of(again)}


def test_operations_of_a_run_that_fail(tmp_path: Path, short: list[str]) -> None:
    """Each with one of the errors in turn; an opening for reading with EIO."""
    words = ["train", *short, "run_dir=run"]
    work, whole = tmp_path / "work", tmp_path / "whole"

    def start(words: list[str], fault: Fault, *, anew: bool = True) -> Outcome:
        if anew:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
        return started(words, work, fault)

    alone = start(words, Fault(how="EIO"))
    assert alone.status == 0, alone.output
    shutil.copytree(work, whole)
    for number, at in enumerate(range(FIRST or 120, len(alone.points) + 1, EVERY or 200)):
        how = "EIO" if alone.points[at - 1] == "read" else ERRORS[number % len(ERRORS)]
        ended = start(words, Fault(at, how=how))
        if ended.status == 0:  # it can do without, or says what it left out
            is_said = re.search(r"rror|damaged|No space|memory", ended.output)
            assert is_said or files_of(whole) == files_of(work), (at, ended.output)
            continue
        assert_one_message(ended)
        assert_nothing_half_written(work)
        has_begun = (work / "run" / "run.json").exists()
        again = start(["train", "resume=run"] if has_begun else words, NO_FAULT, anew=False)
        assert again.status == 0, (at, how, again.output)
        assert_same(whole, work)


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes() or b" ")
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped in the middle": lambda path: flip(path, 0.5),
    "flipped at the end": lambda path: flip(path, 0.98),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
}


def damages(folder: Path, first: int, every: int) -> list[tuple[Path, str]]:
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [(file, kind) for file in files for kind in DAMAGES][(FIRST or first) - 1 :: EVERY or every]


def test_a_run_whose_best_model_or_baseline_is_damaged(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    best, baseline = tmp_path / "run" / "best" / "model.safetensors", tmp_path / "run" / "baseline.json"
    flip(best, 0.5)
    with pytest.raises(UserError, match=r"best/model\.safetensors"):
        overrides_of([f"model={tmp_path / 'run'}"], "train", "+experiment")
    overrides_of([f"model={best.parent}"], "train", "+experiment")  # the user says so
    baseline.write_text(baseline.read_text().replace("0.", "0.9", 1))
    ended = started(["train", "resume=run"], tmp_path)
    assert ended.status == 0, ended.output
    assert "baseline.json" in ended.output
    overrides_of([f"model={tmp_path / 'run'}"], "train", "+experiment")


def test_damaged_models(tmp_path: Path, tiny_path: Path) -> None:
    """Refused with the file's name, or read as before; a flipped bit of a weight is a number like others."""

    def embeddings(folder: Path) -> bytes | str:
        try:
            encoder = Encoder.from_pretrained(folder, device="cpu")
        except UserError as error:
            return str(error)
        return b"".join(encoder.encode(["they tie the cat", "nothing at all"], convert_to_numpy=True))

    whole, copy, messages = embeddings(tiny_path), tmp_path / "copy", []
    for file, kind in damages(tiny_path, 3, 7):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tiny_path, copy)
        DAMAGES[kind](copy / file)
        if isinstance(found := embeddings(copy), str):
            messages.append(found)
            assert file.name in found or str(copy) in found, (file, kind)
        else:
            assert found == whole or (file.suffix == ".safetensors" and "flipped" in kind), (file, kind)
    assert messages
    shutil.rmtree(copy)
    shutil.copytree(tiny_path, copy)
    (copy / "modules.json").unlink()  # transformers' own files alone would give other embeddings
    for path in (copy, tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match=r"modules\.json"):
            Encoder.from_pretrained(path, device="cpu")


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
