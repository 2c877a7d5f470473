"""The start of a run: its folder, its name, and what is on record of how it was started."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from omegaconf import OmegaConf

from idiomtune.config.compose import Composed
from idiomtune.errors import UserError
from idiomtune.io.files import free_name, user_path
from idiomtune.io.processes import has_peers, rank_of_launch
from idiomtune.plugins.registry import is_data_path
from idiomtune.training.resume import has_no_effect, saved_config
from idiomtune.training.run_folder import START, RunFolder, contains_run, is_unfinished

_NOT_SHOWN = re.compile(r"experiment$|(hydra|data\.columns)\b")  # besides options without effect, and folders


def run_of(composed: Composed) -> tuple[RunFolder, dict[str, Any]]:
    """The run that is started or resumed, whose folder is not claimed yet, and its options.

    Raises:
        UserError: if there is a run in `run_dir=` that is not to be overwritten, or it cannot be a folder; if
            an option differs from that of a run that is resumed.
    """
    options = composed.options
    if options["resume"] is not None:
        run = RunFolder(Path(options["resume"]), experiment=composed.experiment)
        return run, saved_config(run.path, options, composed.experiment, composed.overrides)
    start = _start_files(composed)
    if (run_dir := options["run_dir"]) is None:
        name = run_name(composed.overrides, str(options["name"] or ""))
        path = Path("checkpoints", composed.experiment, name).absolute()
        return RunFolder(path, experiment=composed.experiment, start=start, chosen=True), options
    path = user_path(str(run_dir), "run_dir").absolute()  # a number is refused later, as each option is
    try:
        run = RunFolder(path, experiment=composed.experiment, start=start, is_new=not path.exists())
        if not options["overwrite"] and not rank_of_launch():  # now, rather than once torch is imported
            run.refuse_a_run()
    except OSError as error:
        raise UserError(f"the folder of the run cannot be written: {error}") from None
    return run, options


def run_of_job(composed: Composed) -> tuple[RunFolder, dict[str, Any]] | None:
    """The run of a job of a sweep, and its options; None if its folder holds the same job, finished.

    An unfinished one is resumed.
    """
    options, path = composed.options, Path(composed.hydra.runtime.output_dir)
    start = _start_files(composed)
    run = RunFolder(path, experiment=composed.experiment, start=start, is_new=True)
    if contains_run(path) and not has_peers():
        file = path / START / "overrides.yaml"
        if file.is_file() and file.read_bytes() == start["overrides.yaml"].encode():
            if not is_unfinished(path):
                return None
            options["resume"] = str(path)
            options = saved_config(path, options, composed.experiment, [])
    return run, options


def _start_files(composed: Composed) -> dict[str, str]:
    """Name → text, as Hydra writes them by itself."""
    return {
        "config.yaml": OmegaConf.to_yaml(composed.config),
        "hydra.yaml": OmegaConf.to_yaml(composed.hydra),
        "overrides.yaml": OmegaConf.to_yaml(OmegaConf.create([*composed.overrides])),
    }


def run_name(overrides: Sequence[str], chosen: str | None = None) -> str:
    """`2026-11-22_10-15-00_seed-43_batch_size-64`: the seed first, no paths, at most 80 characters.

    Args:
        chosen: a name in place of the options, if it has any character that a folder's name can have.
    """
    parts = [_clean_name(chosen or "", 60)]
    if not parts[0]:
        parts = [_shorten(o) for o in sorted(overrides, key=lambda o: not o.lstrip("+").startswith("seed="))]
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for part in filter(None, parts):
        if len(name) + 1 + len(part) > 80:
            break
        name = f"{name}_{part}"
    return name


def _shorten(override: str) -> str:
    """`trainer.batch_size=64` as `batch_size-64`; "" for what is not shown."""
    key, _, value = override.lstrip("+~").partition("=")
    value = value.strip("'\"")
    if (
        _NOT_SHOWN.match(key)
        or has_no_effect(key)
        or is_data_path(key)
        or (key, value) == ("model", "pretrained")
    ):
        return ""
    if "/" in value or "\\" in value:  # a folder or Hub id: its last part
        value = PurePosixPath(value.replace("\\", "/")).name
    return _clean_name(f"{'model' if key == 'model.path' else key.rpartition('.')[2]}-{value[:24]}")


def _clean_name(text: str, max_length: int | None = None) -> str:
    """The text with the characters that every file system takes in a name."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in ".+-_") else "-" for c in text)
    return clean[:max_length].rstrip("_-.")


def new_sweep_folder(overrides: Sequence[str]) -> Path:
    """A new folder for a sweep that names none, however many start in one second."""
    above = Path("checkpoints/sweeps")
    names = [o.partition("=")[2].strip("'\"") for o in overrides if o.startswith("name=")]
    chosen = names[-1] if names and names[-1] != "null" else None
    try:
        above.mkdir(parents=True, exist_ok=True)
        for folder in free_name(above / run_name(overrides, chosen)):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"the sweep's folder cannot be made in {above}: {error.strerror}") from None
    return folder
