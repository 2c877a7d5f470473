"""From the command line to a checked configuration, and from an error to a message and an exit status.

Imports nothing heavy: `--help` and wrong options answer without waiting for torch.
"""

from __future__ import annotations

import atexit
import difflib
import gc
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

import idiomtune
from idiomtune.config import TrainSettings, check
from idiomtune.config.compose import (
    chosen_by_default,
    config_names,
    explained,
    help_text,
    literal,
    plain,
    quoted,
    register_resolvers,
    unquoted,
)
from idiomtune.config.validation import Settings
from idiomtune.declarations.models import CONF
from idiomtune.declarations.registry import is_place
from idiomtune.errors import UserError
from idiomtune.io.files import (
    checked_text,
    described,
    expanded,
    has_lone_surrogate,
    is_folder,
    parse_yaml,
    printable,
)
from idiomtune.io.processes import has_peers, is_lost_peer, rank_of_launch
from idiomtune.io.records import model_folder, refuse_recorded_code
from idiomtune.io.secrets import refuse_arguments, refuse_values, starred
from idiomtune.io.terminal import log_to_stderr
from idiomtune.programs.ending import TRACEBACKS, Start, print_error, remember, report_error, started
from idiomtune.programs.folders import new_sweep_folder, remove_unused_folder
from idiomtune.programs.process import Interrupts
from idiomtune.training.resume import find_run
from idiomtune.training.sweeper import register

T = TypeVar("T")
PATHS = (
    "run_dir",
    "model.path",
    "model.glossary",
    "retain.teacher",
    "output",
    "per_query",
    "predictions",
    "plots",
    "data.negatives.corpus",
    "checkpoint",
    "glossary",
    "corpus",
)
_SUBJECT = {
    "config": "+experiment",
    **dict.fromkeys(("evaluate", "learn"), "model"),
    "glossary": "from",
    "push": "checkpoint",
}
_PLAIN = re.compile(r"[A-Za-z_./@:][\w./@:+-]*", re.ASCII)  # what needs no quotation marks, and is no number
_KEY = re.compile(r"[\w/\-\\+.$%*@?|()\[\]{}:=, \t]+", re.ASCII)  # what the name of a value can have
_WORDS = {"true", "false", "null", "nan", "inf"}  # which would be values of another type
_SWEEP_FLAGS = ("-m", "--multirun")
_CODE = "model.trust_remote_code"
_OWN_TABLE = dict.fromkeys(
    ("data", "benchmark"), "; a table of your own is data.train=, or scored by benchmark.own_pairs.path="
)
_ADDED = ("experiment", "debug", "protocol", "sweep")  # nothing is chosen of these unless the user does so


def rewrite_arguments(arguments: Sequence[str], program: str = "config") -> list[str]:
    """The command line as Hydra takes it.

    A first word without `=` is what the program is about: `idiomtune evaluate minilm` is `model=minilm`.
    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash);
    `resume=` gets the folder of the run; `benchmarks=` chooses the benchmarks that it names; of
    `+experiment=<file>.yaml` the file is stored as an experiment of its name.

    Args:
        program: name of its configuration: `config` trains, `evaluate` scores.

    Raises:
        UserError: for a file that is no experiment; for `run_dir=` or `resume=` in a sweep, whose runs would
            share the folder; for several models of which one is a path; for a folder to resume that holds no
            run; for a token; for an option with dashes; for `+sweep=` without `-m`; for a choice by what is
            no name.
    """
    refuse_arguments(arguments)
    if broken := next(filter(has_lone_surrogate, arguments), None):
        raise UserError(f"{broken!a}: is not UTF-8 text, so it cannot be recorded with the run")
    _refuse_dashes(arguments)
    _check_config_folder(arguments)
    arguments = sorted(arguments, key=lambda one: one not in _SWEEP_FLAGS)  # Hydra refuses it behind options
    arguments = _with_subject(arguments, program)
    arguments = [_named_experiment(argument) for argument in arguments]
    is_sweep = _is_sweep(arguments)
    if is_sweep:
        _check_sweep(arguments)
    elif search := next((a for a in arguments if a.startswith("+sweep=")), None):
        raise UserError(f"{search} is a search, which makes several runs: idiomtune train -m {search} …")
    resumed = find_run(arguments)
    rewritten = [] if resumed is None else [f"resume={quoted(literal(resumed))}"]
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "model":
            rewritten += _rewritten_model(value, is_sweep)
        elif key == "benchmarks" and program == "config":
            rewritten.append(f"benchmark={value}")
        elif key == "benchmarks" and program == "evaluate":
            rewritten += [*_choice_of(value, arguments), argument]
        elif key != "resume":
            argument = _quoted_scores(argument)
            rewritten.append(argument if is_sweep else _quoted_path(argument))
    for argument in () if is_sweep else rewritten:
        group = argument.partition("=")[0].lstrip("+")
        if f"~{group}" not in rewritten:  # else it is declared in place of a choice
            _check_choice(argument, group)
    return rewritten


def _with_subject(arguments: Sequence[str], program: str) -> list[str]:
    """The arguments, their first word with the option that it is the value of."""
    first = 1 if _is_sweep(arguments[:1]) else 0
    words = list(arguments)
    if program in _SUBJECT and first < len(words) and re.match(r"[^-+=~][^=]*$", words[first]):
        words[first] = f"{_SUBJECT[program]}={words[first]}"
    return words


def _named_experiment(argument: str) -> str:
    """`+experiment=<file>.yaml` by the name that it has for Hydra, which looks into `conf/` only."""
    key, _, value = argument.partition("=")
    path = Path(unquoted(value))
    if key != "+experiment" or path.suffix != ".yaml":
        return argument
    if path.stem in config_names("experiment"):
        raise UserError(f"{argument}: there is an experiment {path.stem} already: rename the file")
    try:
        options = dict(parse_yaml(expanded(str(path), "experiment").read_text(encoding="utf-8")))
        refuse_values(options)
        ConfigStore.instance().store(path.stem, options, group="experiment", package="_global_")
    except (OSError, TypeError, ValueError, YAMLError) as error:
        raise UserError(f"{argument}: cannot be read as an experiment: {error}") from error
    return f"+experiment={as_override(path.stem)}"


def _check_config_folder(arguments: Sequence[str]) -> None:
    """Refuse a folder of `--config-dir` with a file that Hydra, which writes every alias out, cannot hold."""
    for flag, value in pairwise([*arguments, ""]):
        flag, _, folder = flag.partition("=")
        if flag in ("--config-dir", "-cd", "--config-path", "-cp"):
            for path in sorted(Path(folder or value).rglob("*.yaml")):
                try:
                    with suppress(MarkedYAMLError):  # which Hydra reports if it reads the file
                        parse_yaml(path.read_text(encoding="utf-8", errors="replace"))
                except (OSError, YAMLError) as error:
                    raise UserError(f"cannot be read: {error}", option=flag, file=path) from None


def _refuse_dashes(arguments: Sequence[str]) -> None:
    """Refuse an option that is written with dashes, as most programs take them.

    Hydra's parser would answer with its own usage, which names no option of ours, or take the beginning of a
    flag for the flag: `--experiment=` for `--experimental-rerun`, which ignores the rest of the command line.
    """
    flags = get_args_parser()._option_string_actions  # there is no other list of Hydra's own
    for argument in arguments:
        flag, sign, value = argument.partition("=")
        if not flag.startswith("-") or flag == "--" or flag in flags:
            continue
        if near := difflib.get_close_matches(flag, flags, n=1, cutoff=0.8):
            raise UserError(f"{flag}: there is no such flag. Did you mean {near[0]}?")
        name = flag.lstrip("-").replace("-", "_")
        option = f"{'+' if name in _ADDED else ''}{name}={value if sign else '…'}"
        refuse_arguments([option])  # a token is not to be shown
        raise UserError(f"{flag}: options are written name=value, without dashes: {option}")


def _is_sweep(arguments: Sequence[str]) -> bool:
    return any(argument in _SWEEP_FLAGS for argument in arguments)


def _check_sweep(arguments: Sequence[str]) -> None:
    """Refuse what several runs cannot share."""
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("run_dir", "resume"):
            raise UserError(
                f"{key}= is one folder, but -m makes several runs with a folder each: "
                "use hydra.sweep.dir=<folder>"
            )
        if key == "hub.repo_id" and "," not in value and "${" not in value:
            raise UserError(
                f"hub.repo_id={value} names one repository, but -m makes several runs: put what differs into "
                "the name, as hub.repo_id='user/name-${seed}'"
            )


def _rewritten_model(value: str, is_sweep: bool) -> list[str]:
    """`model=`: a name of `conf/model/` stays; a folder or Hub id becomes the path of a pretrained model."""
    bare = unquoted(value)
    names = bare.split(",") if is_sweep else [bare]
    models = config_names("model")
    paths = [
        name
        for name in names
        if name not in models and ("/" in name or (name and is_folder(expanded(name, "model"))))
    ]
    if not paths:
        return [f"model={value}"]
    if len(paths) < len(names):
        raise UserError(
            f"model={value} mixes config names and folders or Hub ids; sweep over either kind, "
            "or over model.path= with full names"
        )
    escape = literal if "\\${" in value else str
    return ["model=pretrained", "model.path=" + ",".join(quoted(escape(model_folder(p))) for p in paths)]


def _choice_of(value: str, arguments: Sequence[str]) -> list[str]:
    """`benchmark=`, where `benchmarks=` names one beyond those that an evaluation has by default.

    Else it only says which of the chosen are scored; options of the others may be given too.
    """
    names = set(re.findall(r"\w+", value)) - {"null"}
    is_chosen = any(argument.startswith("benchmark=") for argument in arguments)
    usual = chosen_by_default("evaluate", "benchmark")
    return [] if is_chosen or names <= {*usual} else [f"benchmark={value}"]


def _check_choice(argument: str, group: str) -> None:
    """Refuse a value that is no name for an option that chooses by name, which Hydra only trips over."""
    names = config_names(group) if group in {path.name for path in CONF.iterdir()} else []
    if not names:
        return
    with suppress(HydraException):  # which Hydra reports itself
        value = OverridesParser.create().parse_override(argument).value()
        parts = value if isinstance(value, list) else [value]
        if wrong := [part for part in parts if not isinstance(part, str | QuotedString | None)]:
            raise UserError(
                f"must be a name ({', '.join(names)}), got {described(wrong[0])}{_OWN_TABLE.get(group, '')}",
                option=group,
            )


def _quoted_path(argument: str) -> str:
    """An option that names a path, in quotation marks: a folder's name may hold what Hydra parses."""
    key, _, value = argument.partition("=")
    option = re.sub(r"^\+*(objective\.parts\.[\w-]+\.)?", "", key)  # a mixture's parts have the same options
    names_path = (option in PATHS or is_place(option)) and value not in ("", "null")
    is_bare = value == value.strip("'\"") and not value.startswith(("[", "{"))
    return f"{key}={quoted(value)}" if names_path and is_bare else argument


def _quoted_scores(argument: str) -> str:
    """Scores of cut embeddings (`…/dim=64`) in quotation marks: of a bare value Hydra takes no second `=`."""
    key, sign, value = argument.partition("=")
    parts = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|([^\[\],'"\s=]+/dim=\d+)"""
    return key + sign + re.sub(parts, lambda m: quoted(m[1]) if m[1] else m[0], value)


def follower_arguments() -> list[str]:
    """Overrides that keep Hydra from recording anything in processes other than the main one."""
    folder = tempfile.mkdtemp(prefix="idiomtune-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [f"hydra.sweep.dir='{folder}'", "hydra/job_logging=follower"]


def as_override(value: Any, option: str = "") -> str:
    """A value in Hydra's override grammar, where it means itself: `${…}` in a text is no interpolation.

    Raises:
        UserError: naming the option, for a value that no option has.
    """
    if hasattr(value, "dtype"):  # of NumPy
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        if unreadable := [key for key in value if not _KEY.fullmatch(str(key))]:
            raise UserError(f"has a name that Hydra cannot read: {unreadable[0]!r:.60}", option=option)
        names = [re.sub(r"[\\()\[\]{}:=, \t]", r"\\\g<0>", str(key)) for key in value]
        parts = [as_override(part, option) for part in value.values()]
        return "{" + ",".join(f"{name}:{part}" for name, part in zip(names, parts, strict=True)) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(as_override(part, option) for part in value)}]"
    if isinstance(value, int | float):
        return str(value)
    text = checked_text(value, option)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(literal(text))


def named_grid(arguments: Sequence[str]) -> str | None:
    """The folder that a grid of runs is given, "" if it is given none; None for all that is not a grid."""
    asks = ("--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--version")
    is_search = any("sweeper=" in a or a.startswith("+sweep=") for a in arguments)
    if not _is_sweep(arguments) or is_search or any(a.partition("=")[0] in asks for a in arguments):
        return None
    folders = [a.partition("=")[2].strip("'\"") for a in arguments if a.startswith("hydra.sweep.dir=")]
    return folders[-1] if folders else ""


def ready(kind: type[Settings], config: dict[str, Any]) -> Settings:
    """The checked settings of a program; then torch and all else that takes seconds is imported.

    Tables that an earlier program of this process has read are read again: they may have changed since.

    No garbage is collected meanwhile, and what these imports leave is never looked through: their million
    objects all stay.

    Raises:
        UserError: naming each option that is wrong, before anything heavy is imported.
    """
    settings = check(kind, config)
    from idiomtune.data.own.load import forget_own_data

    forget_own_data()
    if isinstance(settings, TrainSettings):
        settings.objective.check_files(settings)
    if "torch" not in sys.modules:  # else a sweep's earlier runs may have left garbage
        gc.disable()
        try:
            import sentence_transformers  # noqa: F401

            gc.freeze()
        finally:
            gc.enable()
    return settings


def launch(config_name: str, task: Callable[[dict[str, Any]], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line's overrides and run `task` on it.

    The task gets plain, resolved containers; a path that it returns is printed. A :class:`UserError` or an
    error of Hydra's becomes a message and exit status 2, an interrupt status 130, any other error a short
    message, a traceback in a file, and status 1. In a sweep a failed job is reported and the next one starts;
    the sweep's status is that of the first failure. With several processes only the main one has the run
    folder and prints; a sweep then ends with the first failure, which may concern one process only.
    `idiomtune train` alone shows its help.
    """
    if "--version" in sys.argv[1:]:  # Hydra would print its own
        print(f"idiomtune {idiomtune.__version__}")
        return
    if config_name == "config" and not sys.argv[1:]:
        sys.argv.append("--help")  # rather than a run of hours that nobody described
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(help_text(config_name))
        return
    wants_traceback = os.environ.get(TRACEBACKS) == "1"
    os.environ[TRACEBACKS] = "1"  # makes Hydra raise errors instead of printing a traceback
    logging.raiseExceptions = False  # a full disk is reported once, not again for each log line
    _register()
    grid: Path | None = None
    failures: list[UserError] = []  # of a run that is no job of a sweep: Hydra would add to the message

    def run(config: DictConfig) -> Any:
        _register()  # again, if a launcher runs the job in another process
        remember(config)  # a function, since a launcher may have sent a copy of `started`
        is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            done = task(_plain(config))
            if isinstance(done, Path):
                print(printable(str(done)))
            return done
        except (Exception, SystemExit) as error:  # a user's module may exit, with status 0
            remove_unused_folder()
            if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
                started.unexpected = error
            if is_sweep and has_peers() and not wants_traceback:
                report_error(_in_our_words(error))
            if not isinstance(error, UserError):
                raise
            if is_sweep:
                print_error(f"error: job {HydraConfig.get().job.num}: {error}")
                raise
            failures.append(error)
            return None

    try:
        sys.argv[1:] = rewrite_arguments(sys.argv[1:], config_name)
        if rank_of_launch():
            sys.argv[1:] += follower_arguments()
        elif config_name == "config" and (name := named_grid(sys.argv[1:])) is not None:
            grid = Path(name) if name else new_sweep_folder(sys.argv[1:])
            if not name:
                sys.argv.append(f"hydra.sweep.dir={quoted(str(grid))}")
        try:
            with Interrupts():
                hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
        finally:
            if grid is not None and grid.is_dir():
                _show_sweep(grid)
        for failure in failures:
            raise failure
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        is_hydras_end = isinstance(error, SystemExit) and error is not started.unexpected
        if is_hydras_end or (wants_traceback and isinstance(error, Exception)):
            raise
        sys.exit(report_error(_in_our_words(error)))


def call(config_name: str, task: Callable[[dict[str, Any]], T], arguments: Sequence[str]) -> T:
    """As :func:`launch`, from Python: errors are raised, and no state of Hydra's or of this start is left.

    Args:
        arguments: as on the command line; of one run.

    Raises:
        UserError: for everything that the user can fix.
    """
    before = Singleton.get_state()
    try:
        GlobalHydra.instance().clear()
        vars(started).update(vars(Start()))
        _register()
        given = rewrite_arguments(arguments, config_name)
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose(config_name, given, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        config = deepcopy(config)  # Hydra's own options are read from the other one
        with read_write(config), open_dict(config):
            del config["hydra"]
        remember(config)
        log_to_stderr()
        return task(_plain(config))
    except Exception as error:
        if (explained_error := _in_our_words(error, arguments)) is not error:
            raise explained_error from error
        raise
    finally:
        Singleton.set_state(before)


def _show_sweep(folder: Path) -> None:
    """The table of a grid's jobs, also if some have failed; a search shows its own."""
    from idiomtune.reports.screens import show_finished_sweep

    try:
        show_finished_sweep(folder)
    except Exception as error:  # it must not hide how the jobs ended
        print_error(f"the table of {folder} could not be shown: {type(error).__name__}: {error}")


def _plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain, resolved containers, without secrets.

    Raises:
        UserError: if there are any, also in Hydra's own options; if only a file has a model's code run.
    """
    resolved = plain(config, throw_on_missing=True)
    names = {override.lstrip("+").partition("=")[0] for override in HydraConfig.get().overrides.task}
    model = resolved.get("model")
    refuse_recorded_code(model, "the configuration", repeats=_CODE in names, option=f"{_CODE}=true")
    refuse_values({"hydra": OmegaConf.to_container(HydraConfig.instance().cfg.hydra)})  # type: ignore[union-attr]
    return resolved


def _register() -> None:
    register_resolvers()
    register()


def _in_our_words(error: BaseException, arguments: Sequence[str] = ()) -> BaseException:
    """An error of Hydra's, or of a lost process, as a :class:`UserError`; any other unchanged."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return UserError(starred(explained(error)))
    if not isinstance(error, Exception) or isinstance(error, UserError):
        return error
    if has_peers() and is_lost_peer(error):
        return UserError("another process of this launch ended; see its message")
    if error is not started.unexpected:  # raised by Hydra
        if isinstance(error, OSError) and error.filename is not None:
            return UserError(f"the folder of the run cannot be written: {error}")
        if started.config is None:  # a mistake that Hydra does not expect, such as `=3`
            words = " ".join(arguments or sys.argv[1:])
            return UserError(f"the command line could not be understood ({words}): {error}")
    return error
