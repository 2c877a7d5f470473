"""The call of a run: folder, name, record of the start; the folder of a sweep."""

from __future__ import annotations

import atexit
import contextlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from idiomtune.declarations.registry import is_data_path
from idiomtune.errors import UserError
from idiomtune.io.files import free_name, user_path, write_text
from idiomtune.io.processes import has_peers, rank_of_launch
from idiomtune.programs.failures import current_run
from idiomtune.training.resume import saved_config
from idiomtune.training.run_folder import START, RunFolder, contains_run, is_unfinished, remove_if_empty
from idiomtune.training.sweeper import score_reporter

# Options on data folders, output and tracking, which do not distinguish runs.
_NOT_SHOWN = re.compile(
    r"(experiment|extensions|run_dir|overwrite|name|resume|device)$|(hydra|hub|tracking|trackers|data\.columns)\b"
)


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
    if _NOT_SHOWN.match(key) or is_data_path(key) or (key, value) == ("model", "pretrained"):
        return ""
    if "/" in value or "\\" in value:  # a folder or Hub id: its last part
        value = PurePosixPath(value.replace("\\", "/")).name
    return _clean_name(f"{'model' if key == 'model.path' else key.rpartition('.')[2]}-{value[:24]}")


def _clean_name(text: str, max_length: int | None = None) -> str:
    """The text with the characters that every file system takes in a name."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in ".+-_") else "-" for c in text)
    return clean[:max_length].rstrip("_-.")


@dataclass
class Call:
    """The call of a run, and its folder.

    Attributes:
        run: the folder of the run that is started or resumed, not yet claimed; a new one is not made yet.
        experiment: the `+experiment=`, or `default`.
        overrides: what was given, as on the command line.
        start: file → its text, in the folder of a new run.
        on_score: gets the monitored score of each evaluation except the last (of a search's trial).
    """

    run: RunFolder
    experiment: str = "default"
    overrides: Sequence[str] = ()
    start: Mapping[str, str] = field(default_factory=dict)
    on_score: Callable[[float | None], None] | None = None

    def record_start(self, folder: Path) -> None:
        """Write how a new run was called, as Hydra does by itself."""
        for name, text in self.start.items():
            write_text(folder / START / name, text)


def call_of(
    config: dict[str, Any], composed: DictConfig, overrides: Sequence[str]
) -> tuple[dict[str, Any], Call] | None:
    """The options of the run that Hydra has composed a configuration for, and its call.

    A job of a sweep whose folder holds the same job is resumed; if it is finished, there is nothing to run.

    Args:
        config: resolved.
        composed: the same as Hydra composed it.

    Raises:
        UserError: if there is a run in `run_dir=` that is not to be overwritten, or it cannot be a folder; if
            an option differs from that of a run that is resumed.
    """
    hydra = HydraConfig.get()
    experiment = str(hydra.runtime.choices.get("experiment", "default"))
    text = OmegaConf.to_yaml(OmegaConf.create([*overrides]))
    is_given = config["resume"] is not None
    run = _run_folder(config, hydra, run_name(overrides, str(config["name"] or "")), experiment)
    if hydra.mode == RunMode.MULTIRUN and contains_run(run.path) and not has_peers():
        start = run.path / START / "overrides.yaml"
        if start.is_file() and start.read_bytes() == text.encode():
            config["resume"] = str(run.path)
            if not is_unfinished(run.path):
                print(f"{run.path}: this job is finished, and is skipped", file=sys.stderr)
                return None
    current_run.run = run
    if config["resume"] is not None:
        # A job of a sweep was started with the same overrides.
        config = saved_config(run.path, config, experiment, overrides if is_given else [])
    start_files = {
        "config.yaml": OmegaConf.to_yaml(composed),
        "hydra.yaml": OmegaConf.to_yaml(HydraConfig.instance().cfg),
        "overrides.yaml": text,
    }
    return config, Call(run, experiment, overrides, start_files, score_reporter())


def _run_folder(config: dict[str, Any], hydra: Any, name: str, experiment: str) -> RunFolder:
    """The run to resume, `run_dir=`, or `checkpoints/<experiment>/<name>`; in a sweep the job's."""
    if hydra.mode == RunMode.MULTIRUN:
        return RunFolder(Path(hydra.runtime.output_dir), is_new=True)
    if config["resume"] is not None:
        return RunFolder(Path(config["resume"]))
    run_dir = config["run_dir"] or (hydra.run.dir if hydra.run.dir != "." else None)
    if not run_dir:
        return RunFolder(Path("checkpoints", experiment, name).absolute(), chosen=True)
    folder = user_path(str(run_dir), "run_dir").absolute()  # a number is refused later, as each option is
    try:
        run = RunFolder(folder, is_new=not folder.exists())
        if not config["overwrite"] and not rank_of_launch():  # now, rather than once torch is imported
            run.refuse_a_run()
    except OSError as error:
        raise UserError(f"the folder of the run cannot be written: {error}") from None
    return run


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
        for folder in free_name(above / run_name(options, chosen)):
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
