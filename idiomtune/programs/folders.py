"""The folder of a run or a sweep: its name, the record of the start, and its removal if no run starts."""

from __future__ import annotations

import atexit
import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from idiomtune.declarations.registry import is_place
from idiomtune.errors import UserError
from idiomtune.io.files import expanded, numbered, write_text
from idiomtune.io.processes import has_peers, rank_of_launch
from idiomtune.programs.ending import started
from idiomtune.training.run_folder import START, RunFolder, holds_a_run, remove_if_empty

# Options on data folders, output and tracking, which do not distinguish runs.
_NOT_SHOWN = re.compile(
    r"(experiment|extensions|run_dir|overwrite|name|resume|device)$|(hydra|hub|tracking|trackers)\b"
)


def run_name(overrides: Sequence[str], chosen: str | None = None) -> str:
    """`2026-11-22_10-15-00_seed-43_batch_size-64`: the seed first, no paths, at most 80 characters.

    Args:
        chosen: a name in place of the options, if it has any character that a folder's name can have.
    """
    parts = [_clean(chosen or "", 60)]
    if not parts[0]:
        parts = [_shown(o) for o in sorted(overrides, key=lambda o: not o.lstrip("+").startswith("seed="))]
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for part in filter(None, parts):
        if len(name) + 1 + len(part) > 80:
            break
        name = f"{name}_{part}"
    return name


def _shown(override: str) -> str:
    """`trainer.batch_size=64` as `batch_size-64`; "" for what is not shown."""
    key, _, value = override.lstrip("+~").partition("=")
    value = value.strip("'\"")
    if _NOT_SHOWN.match(key) or is_place(key) or (key, value) == ("model", "pretrained"):
        return ""
    if "/" in value or "\\" in value:  # a folder or Hub id: its last part
        value = PurePosixPath(value.replace("\\", "/")).name
    return _clean(f"{'model' if key == 'model.path' else key.rpartition('.')[2]}-{value[:24]}")


def _clean(text: str, max_length: int | None = None) -> str:
    """The text with the characters that every file system takes in a name."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in ".+-_") else "-" for c in text)
    return clean[:max_length].rstrip("_-.")


def run_folder(config: dict[str, Any]) -> RunFolder:
    """The folder of the run that is started or resumed, not yet claimed; a new one is not made yet.

    It is the run to resume, `run_dir=`, or `checkpoints/<experiment>/<date_time>_<name or short overrides>`.
    A job of a sweep whose folder holds the same job is resumed: `config["resume"]` then names it.

    Raises:
        UserError: if there is a run in `run_dir=` that is not to be overwritten, or it cannot be a folder.
    """
    hydra = HydraConfig.get()
    if hydra.mode == RunMode.MULTIRUN:
        started.run = RunFolder(Path(hydra.runtime.output_dir), made=True)
        if holds_a_run(started.run.path) and not has_peers() and _was_started_alike(started.run.path):
            config["resume"] = str(started.run.path)
    elif config["resume"] is not None:
        started.run = RunFolder(Path(config["resume"]))
    elif given := config["run_dir"] or (hydra.run.dir if hydra.run.dir != "." else None):
        folder = expanded(str(given), "run_dir").absolute()  # a number is refused later, as each option is
        try:
            started.run = RunFolder(folder, made=not folder.exists())
            if not config["overwrite"] and not rank_of_launch():  # now, rather than once torch is imported
                started.run.refuse_a_run()
        except OSError as error:
            raise UserError(f"the folder of the run cannot be written: {error}") from None
    else:
        name = run_name(overrides(), str(config["name"] or ""))
        started.run = RunFolder(Path("checkpoints", experiment_name(), name).absolute(), chosen=True)
    return started.run


def experiment_name() -> str:
    """The `+experiment=` of the current run, or `default`."""
    return str(HydraConfig.get().runtime.choices.get("experiment", "default"))


def overrides() -> list[str]:
    """The command line's overrides of the current run."""
    return list(HydraConfig.get().overrides.task)


def _was_started_alike(folder: Path) -> bool:
    """Whether the run in a folder was started with this job's overrides."""
    path = folder / START / "overrides.yaml"
    return path.is_file() and path.read_bytes() == OmegaConf.to_yaml(OmegaConf.create(overrides())).encode()


def record_start(folder: Path) -> None:
    """Write the overrides and the composed configuration, as Hydra does by itself."""
    write_text(folder / START / "config.yaml", OmegaConf.to_yaml(started.config))
    write_text(folder / START / "hydra.yaml", OmegaConf.to_yaml(HydraConfig.instance().cfg))
    write_text(folder / START / "overrides.yaml", OmegaConf.to_yaml(OmegaConf.create(overrides())))


def new_sweep_folder(overrides: Sequence[str]) -> Path:
    """A new folder for a sweep that names none, however many start in one second.

    It is removed in the end if no job has left anything in it.
    """
    above = Path("checkpoints/sweeps")
    names = [o.partition("=")[2].strip("'\"") for o in overrides if o.startswith("name=")]
    chosen = names[-1] if names and names[-1] != "null" else None
    options = [override for override in overrides if not override.startswith("-")]
    try:
        above.mkdir(parents=True, exist_ok=True)
        for folder in numbered(above / run_name(options, chosen)):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"the sweep's folder cannot be made in {above}: {error.strerror}") from None
    atexit.register(_remove_if_unused, folder.resolve())
    return folder


def _remove_if_unused(folder: Path) -> None:
    if {path.name for path in folder.glob("*")} <= {"multirun.yaml"}:
        (folder / "multirun.yaml").unlink(missing_ok=True)
        remove_if_empty(folder, with_parents=True)


def remove_unused_folder() -> None:
    """Remove the folder that Hydra made for a job of a sweep that did not start, if it is empty."""
    if HydraConfig.get().mode == RunMode.MULTIRUN and not rank_of_launch():
        remove_if_empty(Path(HydraConfig.get().runtime.output_dir), with_parents=False)
