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
from omegaconf import DictConfig, OmegaConf

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


def run_folder_path(*, _root_: DictConfig) -> str:
    """The run to resume, `run_dir=`, or `checkpoints/<experiment>/<date_time>_<name or short overrides>`."""
    folder = _root_.get("resume") or _root_.get("run_dir")
    if folder:
        return str(expanded(str(folder), "run_dir"))
    if started.folder_name is None:
        choices = OmegaConf.select(_root_, "hydra.runtime.choices") or {}
        experiment = choices.get("experiment") or "default"
        chosen = str(_root_.get("name") or "")  # a number is refused later, as each option is checked
        name = run_name(OmegaConf.select(_root_, "hydra.overrides.task") or [], chosen)
        started.folder_name = f"checkpoints/{experiment}/{name}"
    return started.folder_name


def run_folder(config: dict[str, Any]) -> RunFolder:
    """The folder of the run that is started or resumed, not yet claimed.

    A job of a sweep whose folder holds the same job is resumed: `config["resume"]` then names it.
    """
    folder = Path(HydraConfig.get().runtime.output_dir)
    is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    if is_sweep and holds_a_run(folder) and not has_peers() and _was_started_alike(folder):
        config["resume"] = str(folder)
    if config["resume"] is not None:
        started.run = RunFolder(Path(config["resume"]))
        return started.run
    has_folder = any(o.startswith("hydra.run.dir=") for o in HydraConfig.get().overrides.hydra)
    chosen = config["run_dir"] is None and not is_sweep and not has_folder
    started.run = RunFolder(folder, chosen=chosen, made=is_sweep or started.made_folder)
    return started.run


def _was_started_alike(folder: Path) -> bool:
    """Whether the run in a folder was started with this job's overrides."""
    path = folder / START / "overrides.yaml"
    return path.is_file() and path.read_bytes() == _overrides().encode()


def _overrides() -> str:
    return OmegaConf.to_yaml(OmegaConf.create(list(HydraConfig.get().overrides.task)))


def record_start(folder: Path) -> None:
    """Write the overrides and the composed configuration, as Hydra does by itself."""
    write_text(folder / START / "config.yaml", OmegaConf.to_yaml(started.config))
    write_text(folder / START / "hydra.yaml", OmegaConf.to_yaml(HydraConfig.instance().cfg))
    write_text(folder / START / "overrides.yaml", _overrides())


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
    """Remove the folder that was made for a run that did not start, if it is empty."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    # For idiomtune evaluate and resume= no folder is made: theirs is the user's.
    if folder.resolve() == Path.cwd() or rank_of_launch():
        return
    if is_sweep or started.made_folder or str(folder).endswith(str(started.folder_name)):
        remove_if_empty(folder, with_parents=started.folder_name is not None)
