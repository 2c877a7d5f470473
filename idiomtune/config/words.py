"""The words of a command line as Hydra's overrides, and values from Python as such words."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from pydantic_core import to_jsonable_python

from idiomtune.errors import UserError
from idiomtune.io.files import (
    checked_text,
    describe_type,
    has_lone_surrogate,
    is_folder,
    parse_yaml,
    user_path,
)
from idiomtune.io.records import model_folder
from idiomtune.io.secrets import refuse_arguments, refuse_values
from idiomtune.plugins.benchmark import BenchmarkType
from idiomtune.plugins.dataset import DatasetType
from idiomtune.plugins.models import CONF
from idiomtune.plugins.options import ConfigSection
from idiomtune.plugins.registry import declarations_of, is_data_path, load_extensions

# Options whose value is text as it stands, unless it is in brackets or quotation marks.
PATHS = (
    *("run_dir", "resume", "model.path", "model.glossary", "output", "per_query"),
    *("predictions", "data.negatives.corpus", "checkpoint", "glossary", "corpus", "teacher"),
)
TEXTS = (
    *(*PATHS, "model", "query", "queries", "texts", "runs", "models"),
    *("against", "expressions", "folder", "prompts"),
)
ADDED = ("experiment", "debug", "protocol", "sweep")  # choices without a default
SWEEP_FLAGS = ("-m", "--multirun")
_VALUE_FLAGS = ("--config-dir", "--cfg")
_PLAIN = re.compile(r"[A-Za-z_./@:][\w./@:+-]*", re.ASCII)  # what needs no quotation marks, and is no number
_LITERALS = {"true", "false", "null", "nan", "inf"}  # which would be values of another type


def overrides_of(
    words: Sequence[str], config_name: str, subject: str, folder: str | None = None, *, several: bool = False
) -> list[str]:
    """Options as typed, as Hydra's overrides.

    First words without `=` are what the program is about: `idiomtune evaluate minilm` is `model=minilm`.
    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash). A file
    as `+experiment=`, and what `extensions=` declare, Hydra finds in a folder of their own.

    Args:
        words: without flags.
        config_name: the program's, `conf/<config_name>.yaml`.
        subject: the option of the first words.
        folder: of the user's own choices, which come before the modules' (`--config-dir`).
        several: whether commas separate runs (`-m`).

    Raises:
        UserError: for a secret; for an option with dashes; for a file that is no experiment; for a module
            that cannot be imported, or declares nothing.
    """
    refuse_arguments(words)
    if broken := next(filter(has_lone_surrogate, words), None):
        raise UserError(f"{broken!a}: is not UTF-8 text, so it cannot be recorded with the run")
    for word_ in words:
        _refuse_dashes(word_)
    files, overrides = [*_declared_choices(words)], list[str]()
    has_models = bool(default_choices(config_name, "model"))
    for argument in _with_subject(words, subject):
        key, _, value = argument.partition("=")
        if key == "model" and has_models:
            overrides += _model_overrides(value, several)
        elif key == "+experiment" and Path(unquote(value)).suffix == ".yaml":
            files.append(_experiment_file(argument, Path(unquote(value))))
            overrides.append(f"+experiment={word(Path(unquote(value)).stem)}")
        elif key == "benchmarks" and config_name == "train":
            overrides.append(f"benchmark={value}")
        elif key == "benchmarks" and config_name == "evaluate":
            overrides += [*_choice_of(value, words), argument]
        else:
            argument = _quoted_scores(argument)
            overrides.append(argument if several else _quoted_text(argument))
    if folder is not None and not is_folder(Path(folder)):
        raise UserError("there is no such folder", option="--config-dir", file=folder)
    folders = [*([Path(folder).absolute()] if folder else []), *([_folder_of(files)] if files else [])]
    search = ",".join(quote_value(f"file://{path}") for path in folders)
    return [*overrides, *([f"hydra.searchpath=[{search}]"] if search else [])]


def split_flags(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The flags, with their values, and all other words.

    Raises:
        UserError: for a flag without its value.
    """
    flags: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if argument in SWEEP_FLAGS:
            flags["-m"] = ""
        elif name in _VALUE_FLAGS:
            flags[name] = value if sign else next(rest, "")
            if not flags[name] or (name == "--cfg" and flags[name] != "job"):
                raise UserError(f"{name}: needs {'job' if name == '--cfg' else 'a value'} after it")
        else:
            others.append(argument)
    return flags, others


def check_sweep(words: Sequence[str]) -> None:
    """Refuse options that several runs cannot share."""
    for argument in words:
        if (key := argument.partition("=")[0]) in ("run_dir", "resume"):
            raise UserError(f"{key}= is one folder, and -m makes several runs: use hydra.sweep.dir=<folder>")


def _refuse_dashes(argument: str) -> None:
    """Refuse an option with dashes (`--seed 3`), and show the right form."""
    flag, sign, value = argument.partition("=")
    if not flag.startswith("-"):
        return
    name = flag.lstrip("-").replace("-", "_")
    option = f"{'+' if name in ADDED else ''}{name}={value if sign else '…'}"
    refuse_arguments([option])  # a token is not to be shown
    raise UserError(f"{flag}: options are written name=value, without dashes: {option}")


def _with_subject(words: Sequence[str], subject: str) -> list[str]:
    """The words, with an option name before bare first words; of an option that lists, before all of them."""
    lists = subject in ("runs", "models", "texts")
    bare_word = r"[^-+=][^=]*$" if lists else r"[^-+=~][^=]*$"
    is_bare = [re.match(bare_word, word_) is not None for word_ in words]
    if not lists:
        number = int(bool(subject) and is_bare[:1] == [True])
        return [*(f"{subject}={word_}" for word_ in words[:number]), *words[number:]]
    bare = [w for w, alone in zip(words, is_bare, strict=True) if alone or Path(w).exists()]
    listed = [f"{subject}=[{','.join(map(word, bare))}]"] if bare else []
    return [*listed, *(w for w in words if w not in bare)]


# ------------------------------------------------------------------ files that Hydra finds


def _declared_choices(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """What a user's modules declare, as files of choices: `benchmark/<name>.yaml`."""
    listed = [value for key, _, value in (word_.partition("=") for word_ in words) if key == "extensions"]
    modules = [name.strip("'\" ") for value in listed for name in unquote(value).strip("[]").split(",")]
    for module in filter(None, modules):
        load_extensions([module])
        types = declarations_of(module)
        fields = dict.fromkeys(t.setting.removeprefix("data.") for t in types if isinstance(t, DatasetType))
        for declared in types:
            if not isinstance(declared, DatasetType):
                group = "benchmark" if isinstance(declared, BenchmarkType) else "objective"
                section: Any = _defaults(declared.options) | {"name": declared.name}
                section = {declared.name: section} if group == "benchmark" else section
                yield f"{group}/{declared.name}.yaml", {group: section, "data": fields}


def _defaults(options: type[ConfigSection]) -> dict[str, Any]:
    """Option → default, in OmegaConf's form; "???" without one."""
    section: dict[str, Any] = {}
    for name, field in options.model_fields.items():
        kind = field.annotation
        if not field.is_required():
            section[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        elif isinstance(kind, type) and issubclass(kind, ConfigSection):
            section[name] = _defaults(kind)
        else:
            section[name] = "???"
    return section


def _experiment_file(argument: str, path: Path) -> tuple[str, Any]:
    """`+experiment=<file>.yaml` as a choice of its name."""
    if path.stem in config_names("experiment"):
        raise UserError(f"{argument}: there is an experiment {path.stem} already: rename the file")
    try:
        options = dict(parse_yaml(user_path(str(path), "experiment").read_text(encoding="utf-8")))
        refuse_values(options)
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{argument}: cannot be read as an experiment: {error}") from error
    return f"experiment/{path.stem}.yaml", options


def _folder_of(files: Sequence[tuple[str, Any]]) -> Path:
    """A folder with these files, which is there as long as this process is."""
    folder = Path(tempfile.mkdtemp(prefix="idiomtune-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files:
        (folder / name).parent.mkdir(exist_ok=True)
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / name).write_text(f"# @package _global_\n{text}", encoding="utf-8")
    return folder


@cache
def config_names(group: str) -> list[str]:
    """The choices in a config group of the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def default_choices(config_name: str, group: str) -> list[str]:
    """The default choices of a config group in `conf/<config_name>.yaml`; empty for an absent group."""
    config = OmegaConf.to_container(OmegaConf.load(CONF / f"{config_name}.yaml"))
    assert isinstance(config, dict)
    entries = config.get("defaults", [])
    chosen = [entry[group] for entry in entries if isinstance(entry, dict) and group in entry]
    return [str(name) for choice in chosen for name in ([choice] if isinstance(choice, str) else choice)]


# ------------------------------------------------------------------ choices by name


def _model_overrides(value: str, several: bool) -> list[str]:
    """`model=`: a name of `conf/model/` stays; a folder or Hub id becomes the path of a pretrained model."""
    bare = unquote(value)
    names = bare.split(",") if several else [bare]
    models = config_names("model")
    others = [name for name in names if name and name not in models]
    if not any("/" in name or is_folder(user_path(name, "model")) for name in others):
        return [f"model={value}"]
    escape = literal if "\\${" in value else str
    return ["model=pretrained", "model.path=" + ",".join(quote_value(escape(model_folder(n))) for n in names)]


def _choice_of(value: str, words: Sequence[str]) -> list[str]:
    """`benchmark=` in place of a `benchmarks=` that names more than an evaluation's defaults.

    Else it only says which of the chosen are scored; options of the others may be given too.
    """
    names = set(re.findall(r"\w+", value)) - {"null"}
    is_chosen = any(argument.startswith("benchmark=") for argument in words)
    usual = default_choices("evaluate", "benchmark")
    return [] if is_chosen or names <= {*usual} else [f"benchmark={value}"]


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
            option = "benchmark" if group == "benchmarks" else group
            names = ", ".join(config_names(option))
            raise UserError(f"must be a name ({names}), got {describe_type(wrong[0])}", option=option)
        parts = [word(checked_text(part, group)) for part in parts]
        added = "+" if group in ADDED else ""
        words.append(f"{added}{group}=" + (parts[0] if isinstance(value, str) else f"[{','.join(parts)}]"))
    return words, others


# ------------------------------------------------------------------ texts in Hydra's grammar, and back


def word(text: str) -> str:
    """A text as a literal value in Hydra's grammar: `${…}` is not an interpolation."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _LITERALS else quote_value(literal(text))


def quote_value(value: str) -> str:
    """A quoted string of Hydra's grammar, in which a backslash only escapes a quotation mark."""
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value) + "'"


def literal(text: str) -> str:
    """A text whose `${` stays literal after composition."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def unquote(value: str) -> str:
    """The text of a value from :func:`quote_value` or :func:`literal`, or of one without quotation marks."""
    if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
        value = re.sub(rf"(\\+)(?={value[0]}|$)", lambda m: m[1][: len(m[1]) // 2], value[1:-1])
    return re.sub(r"(?<!\\)((\\\\)*)\\\$\{", lambda m: m[1][: len(m[1]) // 2] + "${", value)


def _quoted_text(override: str) -> str:
    """An option with a path or a text, in quotation marks: it may contain Hydra's syntax."""
    key, _, value = override.partition("=")
    option = re.sub(r"^\+*(objective\.parts\.[\w-]+\.)?", "", key)  # a mixture's parts have the same options
    is_text = (option in TEXTS or is_data_path(option)) and value not in ("", "null")
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    is_bare = not is_quoted and not value.startswith(("[", "{"))
    is_number = option == "queries" and value.isdigit()  # of explore; a file of search
    return f"{key}={quote_value(value)}" if is_text and is_bare and not is_number else override


def _quoted_scores(override: str) -> str:
    """Scores of truncated embeddings (`…/dim=64`) in quotation marks: Hydra refuses a second bare `=`."""
    key, sign, value = override.partition("=")
    parts = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|([^\[\],'"\s=]+/dim=\d+)"""
    return key + sign + re.sub(parts, lambda m: quote_value(m[1]) if m[1] else m[0], value)
