"""From the command line to a checked configuration, and from an error to a message and an exit status.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import logging
import os
import re
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from train.credentials import refuse_arguments, refuse_values
from train.errors import UserError
from train.files import write_text
from train.paths import expanded, is_folder
from train.processes import has_peers, is_lost_peer, rank_of_launch
from train.resume import find_run, holds_a_run
from train.run_names import numbered, run_name
from train.runfolder import START, RunFolder, remove_if_empty
from train.search.sweeper import register
from train.text import printable

CONF = Path(__file__).resolve().parent.parent / "conf"

_AFTER_THE_FIRST = 5  # seconds: whose error came first, or is all processes' own, is said alone
_INTERRUPTED = 130  # exit status, as of a shell command that Ctrl-C ended
_TRACEBACKS = "HYDRA_FULL_ERROR"
_PATHS = (
    *("run_dir", "data.root", "data.semeval2022", "data.ncimp", "data.admire", "data.astitch", "data.pie"),
    *("model.path", "output", "per_query", "predictions", "plots", "checkpoint"),
)


def launch(config_name: str, task: Callable[[dict[str, Any]], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line's overrides and run `task` on it.

    The task gets plain, resolved containers. A :class:`UserError`, or one of Hydra's, becomes a message
    and exit status 2; an interrupt 130; anything unexpected a short message, the traceback in a file,
    and 1. In a sweep a job that fails says so and the next one starts; the sweep's status is the first
    failure's. Of several processes of one launch the main one has the run folder, and talks; their sweep
    ends with the first failure, since it may be one process' alone.
    """
    wants_traceback = os.environ.get(_TRACEBACKS) == "1"
    os.environ[_TRACEBACKS] = "1"  # makes Hydra raise instead of printing a traceback of its own
    logging.raiseExceptions = False  # a full disk is reported once, not for each line of the log too
    register_resolvers()
    register()

    def run(config: DictConfig) -> Any:
        register_resolvers()  # again, where a launcher runs the job in a process of its own
        _started.config = config
        is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            assert isinstance(resolved, dict)
            plain = {str(key): value for key, value in resolved.items()}
            refuse_values(plain)
            return task(plain)
        except Exception as error:
            if isinstance(error, UserError):
                _remove_unused_folder()
            elif not isinstance(error, HydraException | OmegaConfBaseException):
                _started.unexpected = error
            if is_sweep and has_peers() and not wants_traceback:
                _end(error)
            if not isinstance(error, UserError):
                raise
            if is_sweep:
                said = f"error: job {HydraConfig.get().job.num}: {error}"
                print(printable(said), file=sys.stderr, flush=True)
                raise
            failures.append(error)  # raised below: Hydra would add words of its own
            return None

    failures: list[UserError] = []

    try:
        sys.argv[1:] = rewrite_arguments(sys.argv[1:], config_names("model"))
        if rank_of_launch():
            sys.argv[1:] += _aside()
        elif config_name == "config" and _is_unnamed_sweep(sys.argv[1:]):
            sys.argv.append(f"hydra.sweep.dir={_quoted(str(_new_sweep_folder()))}")
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
        for failure in failures:
            raise failure
    except KeyboardInterrupt as error:
        _exit(f"interrupted: {error}" if str(error) else "interrupted", _INTERRUPTED)
    except Exception as error:
        if wants_traceback:
            raise
        _end(error)


@dataclass
class _Start:
    """What is known of this start, also once Hydra has forgotten it.

    Attributes:
        config: the configuration, once it is composed.
        unexpected: an error of the task that is no user's slip.
        made_folder: `run_dir=` named a folder that was not there.
        run: the folder of the run.
    """

    config: DictConfig | None = None
    unexpected: Exception | None = None
    made_folder: bool = False
    run: RunFolder | None = None


_started = _Start()


def _end(error: Exception) -> NoReturn:
    """Say what was wrong, and exit."""
    if isinstance(error, UserError):
        _exit(str(error), 2)
    if isinstance(error, HydraException | OmegaConfBaseException):
        _exit(_hydras(error), 2)
    if has_peers() and is_lost_peer(error):
        _exit("another process of this launch ended; see its message", 2)
    if error is not _started.unexpected:  # Hydra was at work
        if isinstance(error, OSError) and error.filename is not None:
            _exit(f"the folder of the run cannot be written: {error}", 2)
        if _started.config is None:  # a slip that Hydra does not expect, as `=3`
            _exit(f"the command line could not be understood ({' '.join(sys.argv[1:])}): {error}", 2)
    _exit(_unexpected(error), 1)


def _hydras(error: Exception) -> str:
    """What an option or a choice that is not there may have been meant to be; else Hydra's own message and
    its cause, without advice that does not apply here.
    """
    met = error.__cause__
    if isinstance(met, ConfigAttributeError | ConfigKeyError) and isinstance(met.parent_node, DictConfig):
        section, _, name = str(met.full_key).rpartition(".")
        return _unknown("option", section, name, [str(key) for key in met.parent_node if key != "hydra"])
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if names := config_names(group):
            return _unknown("choice", group, name, names)
    cause = f"\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    text = f"{error}{cause}".partition("Config search path:")[0]
    # Options have no default to append to, but experiments and debug do come with a plus.
    kept = [line for line in text.splitlines() if not line.startswith("To append to your config")]
    return "\n".join(kept).strip()


def _unknown(kind: str, place: str, name: str, known: Sequence[str]) -> str:
    """That there is no such option of a section, or no such choice of a group, and what there is."""
    if kind == "option":
        told, sign, there = f"{place}.{name}".lstrip("."), ".", place or "the configuration"
    else:
        told, sign, there = f"{place}={name}", "=", place
    near = difflib.get_close_matches(name, known, n=1)
    guess = f" Did you mean {place}{sign if place else ''}{near[0]}?" if near else ""
    return f"{told}: there is no such {kind}.{guess}" + (f"\n{there} has {', '.join(known)}" if known else "")


def register_resolvers() -> None:
    """The interpolations that `conf/` uses beside Hydra's own."""
    resolvers: dict[str, Callable[..., Any]] = {
        "run_folder": _run_folder,
        "experiments": lambda: " | ".join(config_names("experiment")),
        "searches": lambda: " | ".join(config_names("sweep")),
        "experts_mode": lambda clip: "experts_text" if clip is None else "experts_image",
        "models": _models,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, use_cache=False, replace=True)


def _models() -> str:
    """The models by name, for the help texts, in lines below one another."""
    names = " | ".join(name for name in config_names("model") if name != "pretrained")
    return textwrap.fill(names, width=105, subsequent_indent=" " * 17, break_on_hyphens=False)


def compose_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<config_name>.yaml` with overrides, for use from Python, where no program was started.

    Raises:
        UserError: if an override is none.
    """
    register_resolvers()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = OmegaConf.to_container(hydra.compose(config_name, list(overrides)), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_hydras(error)) from error
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def config_names(group: str) -> list[str]:
    """The choices of a config group that come with the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def run_folder(config: dict[str, Any]) -> RunFolder:
    """That of the run that starts, or goes on; not yet claimed."""
    if config["resume"] is not None:
        _started.run = RunFolder(Path(config["resume"]))
        return _started.run
    folder = Path(HydraConfig.get().runtime.output_dir)
    is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    named = any(o.startswith("hydra.run.dir=") for o in HydraConfig.get().overrides.hydra)
    chosen = config["run_dir"] is None and not is_sweep and not named
    _started.run = RunFolder(folder, chosen=chosen, made=is_sweep or _started.made_folder)
    return _started.run


def record_start(folder: Path) -> None:
    """Write what Hydra was asked for and what it made of it, as Hydra does by itself."""
    overrides = OmegaConf.create(list(HydraConfig.get().overrides.task))
    for name, content in (
        ("config.yaml", _started.config),
        ("hydra.yaml", HydraConfig.instance().cfg),
        ("overrides.yaml", overrides),
    ):
        write_text(folder / START / name, OmegaConf.to_yaml(content))


def experiment_name() -> str:
    """The `+experiment=` of the run that is going on, or `default`."""
    return str(HydraConfig.get().runtime.choices.get("experiment", "default"))


def overrides() -> list[str]:
    """The command line's overrides of the run that is going on."""
    return list(HydraConfig.get().overrides.task)


def search() -> tuple[dict[str, Any], Path] | None:
    """Options and folder of the search that the run going on is a trial of; None outside of a search."""
    own = HydraConfig.get()
    if own.sweeper.get("trial") is None:
        return None
    options = OmegaConf.to_container(own.sweeper, resolve=True)
    assert isinstance(options, dict)
    return {str(key): value for key, value in options.items()}, Path(str(own.sweep.dir))


def rewrite_arguments(arguments: Sequence[str], models: Sequence[str]) -> list[str]:
    """The command line as Hydra takes it.

    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash);
    `resume=` gets the folder it means.

    Raises:
        UserError: for `run_dir=` or `resume=` in a sweep, whose runs would share the folder; for
            several models of which one is a path; for a folder to resume that holds no run; for a token;
            for `+sweep=` without `-m`.
    """
    refuse_arguments(arguments)
    sweep = any(a in ("-m", "--multirun") for a in arguments)
    named = next((a for a in arguments if a.startswith("+sweep=")), None)
    if named is not None and not sweep:
        raise UserError(f"{named} is a search, which makes several runs: python -m train -m {named} …")
    rewritten = []
    folder = find_run(arguments)
    if folder is not None:
        rewritten.append(f"resume={_quoted(folder)}")
    for argument in arguments:
        key, _, value = argument.partition("=")
        if sweep and key in ("run_dir", "resume"):
            raise UserError(
                f"{key}= names one folder, but -m makes several runs, each in a folder of its own: "
                "use hydra.sweep.dir=<folder>"
            )
        if sweep and key == "hub.repo_id" and "," not in value and "${" not in value:
            raise UserError(
                f"hub.repo_id={value} names one repository, but -m makes several runs: put what differs into "
                "the name, as hub.repo_id='user/name-${seed}'"
            )
        if key == "resume":
            continue
        if key == "run_dir" and folder is None and not rank_of_launch():
            _check_new_folder(value)
        plain = value.strip("'\"")
        parts = plain.split(",") if sweep else [plain]
        paths = [p for p in parts if p not in models and ("/" in p or (p and is_folder(expanded(p, key))))]
        if key in _PATHS and not sweep and value not in ("", "null") and value == plain:
            rewritten.append(f"{key}={_quoted(value)}")  # a folder's name may hold what Hydra parses
        elif key != "model" or not paths:
            rewritten.append(argument)
        elif len(paths) < len(parts):
            raise UserError(
                f"model={value} mixes config names and folders or Hub ids; sweep over either kind, "
                "or over model.path= with full names"
            )
        else:
            rewritten += ["model=pretrained", "model.path=" + ",".join(_quoted(p) for p in paths)]
    return rewritten


def _aside() -> list[str]:
    """Where Hydra keeps its record in processes that are not the main one: nowhere."""
    folder = tempfile.mkdtemp(prefix="idiomtune-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [
        *(f"hydra.run.dir='{folder}'", f"hydra.sweep.dir='{folder}'"),
        "hydra/job_logging=follower",
    ]


def _quoted(value: str) -> str:
    """As a string of Hydra's override grammar: a backslash escapes in front of a quotation mark alone."""
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value) + "'"


def _check_new_folder(value: str) -> None:
    """Here already, before Hydra writes its record of this start over that of the first."""
    path = expanded(value.strip("'\""), "run_dir")
    if holds_a_run(path):
        raise UserError(
            f"the run folder {value} already holds a run: go on with it by resume={value}, or name "
            "another with run_dir="
        )
    _started.made_folder = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"run_dir={value}: the folder cannot be made: {error.strerror}") from None


_run_folder_of_process: str | None = None


def _run_folder(*, _root_: DictConfig) -> str:
    """The run to resume, `run_dir=`, or `checkpoints/<experiment>/<date_time>_<short overrides>`."""
    global _run_folder_of_process
    named = _root_.get("resume") or _root_.get("run_dir")
    if named:
        return str(expanded(str(named), "run_dir"))
    if _run_folder_of_process is None:
        choices = OmegaConf.select(_root_, "hydra.runtime.choices") or {}
        experiment = choices.get("experiment") or "default"
        name = run_name(OmegaConf.select(_root_, "hydra.overrides.task") or [])
        _run_folder_of_process = f"checkpoints/{experiment}/{name}"
    return _run_folder_of_process


def _is_unnamed_sweep(arguments: Sequence[str]) -> bool:
    asks = ("--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--version")
    return (
        any(a in ("-m", "--multirun") for a in arguments)
        and not any(a.startswith("hydra.sweep.dir=") for a in arguments)
        and not any(a.partition("=")[0] in asks for a in arguments)
    )


def _new_sweep_folder() -> Path:
    """A folder of its own for a sweep that names none, however many start in one second."""
    above = Path("checkpoints/sweeps")
    try:
        above.mkdir(parents=True, exist_ok=True)
        for folder in numbered(above / time.strftime("%Y-%m-%d_%H-%M-%S")):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"the sweep's folder cannot be made in {above}: {error.strerror}") from None
    atexit.register(remove_if_empty, folder, of_experiment=True)
    return folder


def _remove_unused_folder() -> None:
    """The folder that was made for a run that never started, where nothing is in it."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    # train.evaluate and resume= have no folder made for them: theirs is the user's.
    if folder.resolve() == Path.cwd() or rank_of_launch():
        return
    if is_sweep or _started.made_folder or str(folder).endswith(str(_run_folder_of_process)):
        remove_if_empty(folder, of_experiment=_run_folder_of_process is not None)


def _unexpected(error: Exception) -> str:
    """What went wrong, and where its traceback is."""
    import traceback

    text = "".join(traceback.format_exception(error))
    return f"unexpected {type(error).__name__}: {error}\nThe traceback is in {_keep(text)}"


def _keep(text: str) -> Path:
    """In the run's folder where there is one, else in a temporary file."""
    try:
        if _started.run is not None and (_started.run.path / "run.json").is_file():
            path = _started.run.path / "error.log"
            write_text(path, text)
            return path
    except OSError:
        pass
    descriptor, name = tempfile.mkstemp(prefix="idiomtune-error-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


def _exit(message: str, status: int) -> NoReturn:
    who = ""
    if has_peers():
        if rank_of_launch() and status == _INTERRUPTED:  # the main process says it, and has more to write
            time.sleep(_AFTER_THE_FIRST)
            os._exit(status)
        who = f"process {rank_of_launch()}: "
        if "another process" in message or rank_of_launch():
            time.sleep(_AFTER_THE_FIRST)  # the launcher ends the others once one has ended
    label = "" if status == _INTERRUPTED else "error: "
    print(printable(f"{label}{who}{message}"), file=sys.stderr, flush=True)
    if has_peers():
        os._exit(status)  # without waiting for processes that wait for this one
    sys.exit(status)
