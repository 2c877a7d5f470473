"""From the command line to a checked configuration, and from an error to a message and an exit status.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from train.errors import UserError
from train.resume import find_run

CONF = Path(__file__).resolve().parent.parent / "conf"
log = logging.getLogger("train")


def launch(config_name: str, task: Callable[[dict[str, Any]], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line's overrides and run `task` on it.

    The task gets plain, resolved containers. A :class:`UserError` becomes a message and exit status
    2; an interrupt 130; anything unexpected a short message, the traceback in a file, and 1.
    """
    register_resolvers()
    try:
        sys.argv[1:] = rewrite_arguments(sys.argv[1:], config_names("model"))
    except UserError as error:
        _exit(str(error), 2)

    def run(config: DictConfig) -> Any:
        with _errors_for_people():
            try:
                resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            except OmegaConfBaseException as error:
                raise UserError(f"the configuration is incomplete: {error}") from None
            assert isinstance(resolved, dict)
            return task({str(key): value for key, value in resolved.items()})

    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
    # Hydra explains its own errors; what is left are slips that it did not expect, such as `=3`.
    except Exception as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        _exit(f"the command line could not be understood: {error}", 2)


def register_resolvers() -> None:
    """The interpolations that `conf/` uses beside Hydra's own."""
    resolvers: dict[str, Callable[..., Any]] = {
        "run_folder": _run_folder,
        "experiments": lambda: " | ".join(config_names("experiment")),
        "models": lambda: " | ".join(n for n in config_names("model") if n != "pretrained"),
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, use_cache=False, replace=True)


def config_names(group: str) -> list[str]:
    """The choices of a config group that come with the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def output_folder() -> Path:
    """The run folder of the run that is going on."""
    return Path(HydraConfig.get().runtime.output_dir)


def experiment_name() -> str:
    """The `+experiment=` of the run that is going on, or `default`."""
    return str(HydraConfig.get().runtime.choices.get("experiment", "default"))


def overrides() -> list[str]:
    """The command line's overrides of the run that is going on."""
    return list(HydraConfig.get().overrides.task)


def rewrite_arguments(arguments: Sequence[str], models: Sequence[str]) -> list[str]:
    """The command line as Hydra takes it.

    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash);
    `resume=` gets the folder it means, and Hydra's record of the first start is left as it is.

    Raises:
        UserError: for `run_dir=` or `resume=` in a sweep, whose runs would share the folder; for
            several models of which one is a path; for a folder to resume that holds no run.
    """
    sweep = any(a in ("-m", "--multirun") for a in arguments)
    rewritten = []
    folder = find_run(arguments)
    if folder is not None:
        escaped_folder = folder.replace("\\", "\\\\").replace("'", "\\'")
        rewritten += [f"resume='{escaped_folder}'", "hydra.output_subdir=null"]
    for argument in arguments:
        key, _, value = argument.partition("=")
        if sweep and key in ("run_dir", "resume"):
            raise UserError(
                f"{key}= names one folder, but -m makes several runs, each in a folder of its own: "
                "use hydra.sweep.dir=<folder>"
            )
        if key == "resume":
            continue
        # Here already, before Hydra writes its record of this start over that of the first.
        if key == "run_dir" and folder is None and (Path(value.strip("'\"")) / "run.json").is_file():
            raise UserError(
                f"the run folder {value} already holds a run: go on with it by resume={value}, or name "
                "another with run_dir="
            )
        plain = value.strip("'\"")
        parts = plain.split(",") if sweep else [plain]
        paths = [p for p in parts if p not in models and ("/" in p or Path(p).expanduser().is_dir())]
        if key != "model" or not paths:
            rewritten.append(argument)
        elif len(paths) < len(parts):
            raise UserError(
                f"model={value} mixes config names and folders or Hub ids; sweep over either kind, "
                "or over model.path= with full names"
            )
        else:
            escaped = ("'" + p.replace("\\", "\\\\").replace("'", "\\'") + "'" for p in paths)
            rewritten += ["model=pretrained", "model.path=" + ",".join(escaped)]
    return rewritten


_run_folder_of_process: str | None = None


def _run_folder(*, _root_: DictConfig) -> str:
    """The run to resume, `run_dir=`, or `checkpoints/<experiment>/<date_time>_<short overrides>`."""
    import time

    global _run_folder_of_process
    named = _root_.get("resume") or _root_.get("run_dir")
    if named:
        return str(named)
    if _run_folder_of_process is None:
        choices = OmegaConf.select(_root_, "hydra.runtime.choices") or {}
        experiment = choices.get("experiment") or "default"
        overrides = [
            _for_folder_name(override)
            for override in OmegaConf.select(_root_, "hydra.overrides.task") or []
            if not override.startswith("+experiment=")
        ]
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        short = "_".join([stamp, *overrides])[:120].rstrip("_-.")
        _run_folder_of_process = f"checkpoints/{experiment}/{short}"
    return _run_folder_of_process


def _for_folder_name(override: str) -> str:
    """`trainer.batch_size=64` as `batch_size=64`, without what a folder name cannot hold."""
    key, _, value = override.partition("=")
    short = f"{key.rpartition('.')[2]}={value}"
    return "".join(c if c.isalnum() or c in "=.+-" else "-" for c in short)


@contextlib.contextmanager
def _errors_for_people() -> Any:
    try:
        yield
    except UserError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        _exit(str(error), 2)
    except KeyboardInterrupt as error:
        _exit(f"interrupted: {error}" if str(error) else "interrupted", 130)
    except Exception as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        _exit(_unexpected(error), 1)


def _unexpected(error: Exception) -> str:
    import traceback

    message = f"unexpected {type(error).__name__}: {error}"
    try:
        folder = output_folder()
        if HydraConfig.get().output_subdir is None:  # train.evaluate has no folder of its own
            raise OSError
        path = folder / "error.log"
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except (OSError, ValueError):
        return f"{message}\nFor the traceback set HYDRA_FULL_ERROR=1"
    return f"{message}\nThe traceback is in {path}"


def _exit(message: str, status: int) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(status)
