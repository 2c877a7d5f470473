"""The files of a run folder, for all readers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from idiomtune.errors import UserError, resume_command
from idiomtune.io.files import changed_files, is_file, is_folder, list_names
from idiomtune.io.records import readable_record

CHECKSUMS = "checksums.json"  # file → SHA-256
RECORD = "record.json"  # the run's `config.yaml`, `run.json` and `metrics.jsonl` as of then
OPTIMIZER, OBJECTIVE = "optimizer.safetensors", "objective.safetensors"
TRAINED = "trained.safetensors"  # the weights to train on, if the model is exported with others
_OWN = (OPTIMIZER, OBJECTIVE, TRAINED, "state.json", "scores.json", RECORD, CHECKSUMS)
NOT_OF_THE_MODEL = (*_OWN, "README.md")


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, its `config.yaml`.

    Raises:
        UserError: if it is damaged.
    """
    return _read(folder / "config.yaml", needed={"model", "data", "trainer"})


def read_run_json(folder: Path) -> dict[str, Any]:
    """The record of a run, its `run.json`.

    Raises:
        UserError: if it is damaged.
    """
    return _read(folder / "run.json", needed={"experiment"})


def _read(path: Path, needed: set[str]) -> dict[str, Any]:
    content = readable_record(path)
    if not needed <= {name for name, value in content.items() if value is not None}:
        raise UserError(
            f"{path} is damaged or missing. If there is a complete checkpoint, {resume_command(path.parent)} "
            "makes it again. A checkpoint, step_*, can be evaluated too: "
            "idiomtune evaluate model=<checkpoint>"
        )
    return content


def run_and_model(path: Path) -> tuple[Path, Path] | None:
    """The run that a path refers to, and the folder of the model (`best/` by default); None for others.

    Raises:
        UserError: for a folder of several runs.
    """
    if is_file(path / "run.json"):
        return path, path / "best"
    if is_folder(path) and (several := sorted(path.glob("*/run.json"))):
        raise UserError(f"{path}: has {len(several)} runs: choose one of them, such as {several[0].parent}")
    is_part = path.name == "best" or path.name.removeprefix("step_").isdigit()
    return (path.parent, path) if is_part and is_file(path.parent / "run.json") else None


def checkpoints(run: Path) -> list[Path]:
    """`step_<n>/` of a run, oldest first."""
    return sorted((p for p in run.glob("step_*") if re.fullmatch("step_[0-9]+", p.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The step of `step_<n>/`."""
    return int(checkpoint.name.removeprefix("step_"))


def verify(checkpoint: Path, *, model_in: Path | None = None) -> str | None:
    """The problem of a checkpoint's files, or None.

    Args:
        model_in: check only the model's files, in this folder (the checkpoint's or `best/`).
    """
    sums = readable_record(checkpoint / CHECKSUMS)
    if "state.json" not in sums:
        return f"{CHECKSUMS} is missing or damaged"
    if model_in is not None:
        sums = {name: digest for name, digest in sums.items() if name not in NOT_OF_THE_MODEL}
    changed = changed_files(model_in or checkpoint, sums)
    return f"{list_names(changed)} is missing or damaged" if changed else None
