"""The words of a command line as Hydra takes them, and a choice by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import HydraException
from pydantic_core import to_jsonable_python
from yaml import YAMLError

from idiomtune.config.compose import config_names, default_choices, literal, quote_value, unquote
from idiomtune.declarations.benchmark import BenchmarkType
from idiomtune.declarations.dataset import DatasetType
from idiomtune.declarations.models import CONF
from idiomtune.declarations.options import Section
from idiomtune.declarations.registry import declarations_of, is_data_path, load_extensions
from idiomtune.errors import UserError
from idiomtune.io.files import (
    checked_text,
    describe_type,
    has_lone_surrogate,
    is_file,
    is_folder,
    parse_yaml,
    user_path,
)
from idiomtune.io.records import model_folder
from idiomtune.io.secrets import refuse_arguments, refuse_values

PATHS = (
    "run_dir",
    "resume",
    "model.path",
    "model.glossary",
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
_WORDS = {"true", "false", "null", "nan", "inf"}  # which would be values of another type
_SWEEP_FLAGS = ("-m", "--multirun")
_OWN_TABLE = dict.fromkeys(
    ("data", "benchmark"), "; a table of your own is data.train=, or scored by benchmark.own_sts.path="
)
_ADDED = ("experiment", "debug", "protocol", "sweep")  # choices without a default


def rewrite_arguments(arguments: Sequence[str], program: str = "config") -> list[str]:
    """The command line as Hydra takes it.

    A first word without `=` is what the program is about: `idiomtune evaluate minilm` is `model=minilm`.
    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash);
    `benchmarks=` chooses the benchmarks that it names; of `+experiment=<file>.yaml` the file is stored as an
    experiment of its name.

    Args:
        program: name of its configuration: `config` trains, `evaluate` scores.

    Raises:
        UserError: for a file that is no experiment; for `run_dir=` or `resume=` in a sweep, whose runs would
            share the folder; for several models of which one is a path; for a token; for an option with
            dashes; for `+sweep=` without `-m`; for a choice by what is no name.
    """
    refuse_arguments(arguments)
    if broken := next(filter(has_lone_surrogate, arguments), None):
        raise UserError(f"{broken!a}: is not UTF-8 text, so it cannot be recorded with the run")
    _refuse_dashes(arguments)
    flags, options = _flags_and_options(arguments)
    options = _with_subject(options, program)
    _register_extensions(options, flags)
    arguments = [*flags, *map(_named_experiment, options)]
    several = is_sweep(arguments)
    if several:
        _check_sweep(arguments)
    elif search := next((a for a in arguments if a.startswith("+sweep=")), None):
        raise UserError(f"{search} is a search, which makes several runs: idiomtune train -m {search} …")
    rewritten: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "model":
            rewritten += _rewritten_model(value, several)
        elif key == "benchmarks" and program == "config":
            rewritten.append(f"benchmark={value}")
        elif key == "benchmarks" and program == "evaluate":
            rewritten += [*_choice_of(value, arguments), argument]
        else:
            argument = _quoted_scores(argument)
            rewritten.append(argument if several else _quoted_path(argument))
    for argument in () if several else rewritten:
        if f"~{argument.partition('=')[0].lstrip('+')}" not in rewritten:  # else it is declared in its place
            _check_choice(argument)
    return rewritten


def _flags_and_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's flags with their values (its parser refuses them after options), and all other words."""
    actions = get_args_parser()._option_string_actions  # there is no other list of Hydra's own
    flags: list[str] = []
    options: list[str] = []
    value_of = None  # the flag whose value may come next
    for argument in arguments:
        name, sign, _ = argument.partition("=")
        is_flag = name in actions or name == "--"
        may_be_value = value_of is not None and (value_of.choices is None or argument in value_of.choices)
        is_value = may_be_value and not is_flag
        _check_value(value_of, is_value)
        (flags if is_flag or is_value else options).append(argument)
        takes_value = is_flag and not sign and name in actions and actions[name].nargs != 0
        value_of = actions[name] if takes_value else None
    _check_value(value_of, False)
    flags.sort(key=lambda flag: flag not in _SWEEP_FLAGS)
    return flags, options


def _check_value(flag: Any, is_given: bool) -> None:
    """Refuse a flag of Hydra without its value."""
    if flag is not None and flag.nargs is None and not is_given:
        raise UserError(
            f"{flag.option_strings[0]}: needs {' or '.join(flag.choices or ['a value'])} after it"
        )


def _with_subject(options: Sequence[str], program: str) -> list[str]:
    """The words, with an option name before a bare first word."""
    words = list(options)
    if program in _SUBJECT and words and re.match(r"[^-+=~][^=]*$", words[0]):
        words[0] = f"{_SUBJECT[program]}={words[0]}"
    return words


def _register_extensions(options: Sequence[str], flags: Sequence[str]) -> None:
    """Register what a user's modules declare as choices by name, unless a file does.

    Raises:
        UserError: if a module cannot be imported, or declares nothing.
    """
    listed = [value for key, _, value in (word.partition("=") for word in options) if key == "extensions"]
    modules = [name.strip("'\" ") for value in listed for name in unquote(value).strip("[]").split(",")]
    for module in filter(None, modules):
        load_extensions([module])
        types = declarations_of(module)
        fields = dict.fromkeys(t.setting.removeprefix("data.") for t in types if isinstance(t, DatasetType))
        for declared in types:
            group = "benchmark" if isinstance(declared, BenchmarkType) else "objective"
            files = (folder / group / f"{declared.name}.yaml" for folder in _config_folders(flags))
            if not isinstance(declared, DatasetType) and not any(map(is_file, files)):
                section = _defaults(declared.options) | {"name": declared.name}
                node = {"benchmark": {declared.name: section}} if group == "benchmark" else {group: section}
                store = ConfigStore.instance().store
                store(declared.name, node | {"data": fields}, group=group, package="_global_")


def _defaults(options: type[Section]) -> dict[str, Any]:
    """Option → default, in OmegaConf's form; "???" without one."""
    section: dict[str, Any] = {}
    for name, field in options.model_fields.items():
        kind = field.annotation
        if not field.is_required():
            section[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        elif isinstance(kind, type) and issubclass(kind, Section):
            section[name] = _defaults(kind)
        else:
            section[name] = "???"
    return section


def _config_folders(flags: Sequence[str]) -> list[Path]:
    """The folders of options that flags name."""
    return [
        Path(folder or value)
        for (flag, _, folder), value in ((a.partition("="), b) for a, b in pairwise([*flags, ""]))
        if flag in ("--config-dir", "-cd", "--config-path", "-cp")
    ]


def _named_experiment(argument: str) -> str:
    """`+experiment=<file>.yaml` as a name that Hydra finds; it looks only into `conf/`."""
    key, _, value = argument.partition("=")
    path = Path(unquote(value))
    if key != "+experiment" or path.suffix != ".yaml":
        return argument
    if path.stem in config_names("experiment"):
        raise UserError(f"{argument}: there is an experiment {path.stem} already: rename the file")
    try:
        options = dict(parse_yaml(user_path(str(path), "experiment").read_text(encoding="utf-8")))
        refuse_values(options)
        ConfigStore.instance().store(path.stem, options, group="experiment", package="_global_")
    except (OSError, TypeError, ValueError, YAMLError) as error:
        raise UserError(f"{argument}: cannot be read as an experiment: {error}") from error
    return f"+experiment={word(path.stem)}"


def _refuse_dashes(arguments: Sequence[str]) -> None:
    """Refuse an option with dashes (`--seed 3`), and show the right form.

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


def is_sweep(arguments: Sequence[str]) -> bool:
    """Whether the command line makes several runs."""
    return any(argument in _SWEEP_FLAGS for argument in arguments)


def _check_sweep(arguments: Sequence[str]) -> None:
    """Refuse options that several runs cannot share."""
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


def _rewritten_model(value: str, several: bool) -> list[str]:
    """`model=`: a name of `conf/model/` stays; a folder or Hub id becomes the path of a pretrained model."""
    bare = unquote(value)
    names = bare.split(",") if several else [bare]
    models = config_names("model")
    paths = [
        name
        for name in names
        if name not in models and ("/" in name or (name and is_folder(user_path(name, "model"))))
    ]
    if not paths:
        return [f"model={value}"]
    if len(paths) < len(names):
        raise UserError(
            f"model={value} mixes config names and folders or Hub ids; sweep over either kind, "
            "or over model.path= with full names"
        )
    escape = literal if "\\${" in value else str
    return ["model=pretrained", "model.path=" + ",".join(quote_value(escape(model_folder(p))) for p in paths)]


def _choice_of(value: str, arguments: Sequence[str]) -> list[str]:
    """`benchmark=` in place of a `benchmarks=` that names more than an evaluation's defaults.

    Else it only says which of the chosen are scored; options of the others may be given too.
    """
    names = set(re.findall(r"\w+", value)) - {"null"}
    is_chosen = any(argument.startswith("benchmark=") for argument in arguments)
    usual = default_choices("evaluate", "benchmark")
    return [] if is_chosen or names <= {*usual} else [f"benchmark={value}"]


def _check_choice(argument: str) -> None:
    """Refuse a value that is not a name, for an option that chooses a file by name."""
    group = argument.partition("=")[0].lstrip("+")
    if group in _groups():
        with suppress(HydraException):  # which Hydra reports itself
            value = OverridesParser.create().parse_override(argument).value()
            parts = value if isinstance(value, list) else [value]
            if wrong := [part for part in parts if not isinstance(part, str | QuotedString | None)]:
                raise _no_name(group, wrong[0])


def _no_name(group: str, value: Any) -> UserError:
    names, table = ", ".join(config_names(group)), _OWN_TABLE.get(group, "")
    return UserError(f"must be a name ({names}), got {describe_type(value)}{table}", option=group)


def _groups() -> set[str]:
    return {path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"}


def split_choices(values: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Nested values from Python: choices by name as words, and all other values.

    Raises:
        UserError: naming an option whose value is no name.
    """
    words, others = [], {}
    for group, value in values.items():
        is_named = group in {*_groups(), "benchmarks", "extensions"}
        if not is_named or isinstance(value, Mapping):
            others[group] = value
            continue
        parts = value if isinstance(value, list | tuple) else [value]
        if wrong := [part for part in parts if not isinstance(part, str)]:
            raise _no_name("benchmark" if group == "benchmarks" else group, wrong[0])
        parts = [word(checked_text(part, group)) for part in parts]
        added = "+" if group in _ADDED else ""
        words.append(f"{added}{group}=" + (parts[0] if isinstance(value, str) else f"[{','.join(parts)}]"))
    return words, others


def word(text: str) -> str:
    """A text as a literal value in Hydra's grammar: `${…}` is not an interpolation."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quote_value(literal(text))


def _quoted_path(argument: str) -> str:
    """An option with a path, in quotation marks: a folder's name may contain Hydra's syntax."""
    key, _, value = argument.partition("=")
    option = re.sub(r"^\+*(objective\.parts\.[\w-]+\.)?", "", key)  # a mixture's parts have the same options
    names_path = (option in PATHS or is_data_path(option)) and value not in ("", "null")
    is_bare = value == value.strip("'\"") and not value.startswith(("[", "{"))
    return f"{key}={quote_value(value)}" if names_path and is_bare else argument


def _quoted_scores(argument: str) -> str:
    """Scores of truncated embeddings (`…/dim=64`) in quotation marks: Hydra refuses a second bare `=`."""
    key, sign, value = argument.partition("=")
    parts = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|([^\[\],'"\s=]+/dim=\d+)"""
    return key + sign + re.sub(parts, lambda m: quote_value(m[1]) if m[1] else m[0], value)


def grid_by_name(arguments: Sequence[str]) -> str | None:
    """The folder named for a grid of runs, "" if none is named; None if the command is not a grid."""
    asks = ("--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--version")
    is_search = any("sweeper=" in a or a.startswith("+sweep=") for a in arguments)
    if not is_sweep(arguments) or is_search or any(a.partition("=")[0] in asks for a in arguments):
        return None
    folders = [a.partition("=")[2].strip("'\"") for a in arguments if a.startswith("hydra.sweep.dir=")]
    return folders[-1] if folders else ""
