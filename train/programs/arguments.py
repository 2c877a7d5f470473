"""From the command line that people type to the one that Hydra takes."""

from __future__ import annotations

import atexit
import difflib
import re
import shutil
import tempfile
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser

from train.config.validation import refuse_arguments
from train.declarations.registry import is_place
from train.errors import UserError
from train.io.paths import expanded, is_folder
from train.io.processes import rank_of_launch
from train.programs.ending import started
from train.training.resume import find_run
from train.training.run_folder import holds_a_run

_PATHS = (
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
_ADDED = ("experiment", "debug", "protocol", "sweep")  # nothing is chosen of these unless the user does so


def rewrite_arguments(
    arguments: Sequence[str], models: Sequence[str], program: str = "", benchmarks: Sequence[str] = ()
) -> list[str]:
    """The command line as Hydra takes it.

    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash);
    `resume=` gets the folder of the run; `benchmarks=` chooses the benchmarks that it names.

    Args:
        models: names of models' configurations.
        program: name of its configuration: `config` trains, `evaluate` scores, `export` exports.
        benchmarks: those that are chosen by default.

    Raises:
        UserError: for `run_dir=` or `resume=` in a sweep, whose runs would share the folder; for
            several models of which one is a path; for a folder to resume that holds no run; for a token;
            for an option with dashes; for `+sweep=` without `-m`.
    """
    refuse_arguments(arguments)
    _refuse_dashes(arguments)
    is_sweep = _is_sweep(arguments)
    if is_sweep:
        _check_sweep(arguments)
    elif search := next((a for a in arguments if a.startswith("+sweep=")), None):
        raise UserError(f"{search} is a search, which makes several runs: python -m train -m {search} …")
    resumed = find_run(arguments)
    rewritten = [] if resumed is None else [f"resume={quoted(resumed)}"]
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "run_dir" and resumed is None and not rank_of_launch():
            _check_new_folder(value)
        if key == "model":
            rewritten += _rewritten_model(value, models, is_sweep)
        elif key == "benchmarks" and program in ("config", "export"):
            rewritten.append(f"benchmark={value}")
        elif key == "benchmarks" and program == "evaluate":
            rewritten += [*_choice_of(value, arguments, benchmarks), argument]
        elif key != "resume":
            argument = _quoted_scores(argument)
            rewritten.append(argument if is_sweep else _quoted_path(argument))
    return rewritten


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
    return any(argument in ("-m", "--multirun") for argument in arguments)


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


def _rewritten_model(value: str, models: Sequence[str], is_sweep: bool) -> list[str]:
    """`model=`: a name of `conf/model/` stays; a folder or Hub id becomes the path of a pretrained model."""
    bare = value.strip("'\"")
    names = bare.split(",") if is_sweep else [bare]
    paths = [name for name in names if name not in models and _is_model_path(name)]
    if not paths:
        return [f"model={value}"]
    if len(paths) < len(names):
        raise UserError(
            f"model={value} mixes config names and folders or Hub ids; sweep over either kind, "
            "or over model.path= with full names"
        )
    return ["model=pretrained", "model.path=" + ",".join(quoted(path) for path in paths)]


def _choice_of(value: str, arguments: Sequence[str], benchmarks: Sequence[str]) -> list[str]:
    """`benchmark=`, where `benchmarks=` names one beyond those that are chosen by default.

    Else it only says which of the chosen are scored; options of the others may be given too.
    """
    names = set(re.findall(r"\w+", value)) - {"null"}
    is_chosen = any(argument.startswith("benchmark=") for argument in arguments)
    return [] if is_chosen or names <= {*benchmarks} else [f"benchmark={value}"]


def _is_model_path(name: str) -> bool:
    return "/" in name or (bool(name) and is_folder(expanded(name, "model")))


def _quoted_path(argument: str) -> str:
    """An option that names a path, in quotation marks: a folder's name may hold what Hydra parses."""
    key, _, value = argument.partition("=")
    option = re.sub(r"^\+*(objective\.parts\.[\w-]+\.)?", "", key)  # a mixture's parts have the same options
    names_path = (option in _PATHS or is_place(option)) and value not in ("", "null")
    is_bare = value == value.strip("'\"") and not value.startswith(("[", "{"))
    return f"{key}={quoted(value)}" if names_path and is_bare else argument


def _quoted_scores(argument: str) -> str:
    """Scores of cut embeddings (`…/dim=64`) in quotation marks: of a bare value Hydra takes no second `=`."""
    key, sign, value = argument.partition("=")
    return key + sign + re.sub(r"""(['"]?)([^\[\],'"\s=]+/dim=\d+)\1""", r"'\2'", value)


def follower_arguments() -> list[str]:
    """Overrides that keep Hydra from recording anything in processes other than the main one."""
    folder = tempfile.mkdtemp(prefix="idiomtune-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [
        f"hydra.run.dir='{folder}'",
        f"hydra.sweep.dir='{folder}'",
        "hydra/job_logging=follower",
    ]


def quoted(value: str) -> str:
    """A string of Hydra's override grammar, where a backslash only escapes before a quotation mark."""
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value) + "'"


def _check_new_folder(value: str) -> None:
    """Check a new run's folder early, before Hydra overwrites the record of an earlier start."""
    path = expanded(value.strip("'\""), "run_dir")
    if holds_a_run(path):
        raise UserError(
            f"the run folder {value} already contains a run: resume it with resume={value}, or name "
            "another folder with run_dir="
        )
    started.made_folder = not path.exists()


def named_grid(arguments: Sequence[str]) -> str | None:
    """The folder that a grid of runs is given, "" if it is given none; None for all that is not a grid."""
    asks = ("--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--version")
    is_search = any("sweeper=" in a or a.startswith("+sweep=") for a in arguments)
    if not _is_sweep(arguments) or is_search or any(a.partition("=")[0] in asks for a in arguments):
        return None
    folders = [a.partition("=")[2].strip("'\"") for a in arguments if a.startswith("hydra.sweep.dir=")]
    return folders[-1] if folders else ""
