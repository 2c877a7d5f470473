"""The words of a command line as Hydra's overrides, and values from Python as such words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from pydantic_core import to_jsonable_python

from idiomtune.errors import UserError
from idiomtune.io.files import checked_text, is_folder, parse_yaml, user_path
from idiomtune.io.records import model_folder
from idiomtune.io.secrets import refuse_arguments, refuse_values
from idiomtune.plugins.benchmark import BenchmarkType
from idiomtune.plugins.dataset import DatasetType
from idiomtune.plugins.models import CONF
from idiomtune.plugins.options import ConfigSection, as_list
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
# What needs no quotation marks, and is no value of another type.
_PLAIN = re.compile(r"(?!(?i:true|false|null|nan|inf)$)[A-Za-z_./@:][\w./@:+-]*", re.ASCII)


def overrides_of(
    words: Sequence[str], config_name: str, subject: str, folder: str | None = None, *, several: bool = False
) -> list[str]:
    """Options as typed, as Hydra's overrides.

    First words without `=` are what the program is about: `idiomtune evaluate minilm` is `model=minilm`.
    `model=<folder or Hub id>` becomes `model=pretrained model.path='...'` (Hydra refuses the slash).

    Args:
        words: without flags.
        config_name: the program's, `conf/<config_name>.yaml`.
        subject: the option of the first words.
        folder: of the user's own choices, which come before the modules' (`--config-dir`).
        several: whether commas separate runs (`-m`).

    Raises:
        UserError: for a secret; for what is not written name=value; for a file that is no experiment; for a
            module that cannot be imported, or declares nothing; for an option that several runs cannot share.
    """
    refuse_arguments(words)
    words, overrides = _with_subject(words, subject), list[str]()
    _declare(words, folder)  # first: the data of a declared benchmark is a path, too
    for argument in words:
        _check_form(argument)
        key, _, value = argument.partition("=")
        if several and key in ("run_dir", "resume"):
            raise UserError(f"{key}= is one folder, and -m makes several runs: use hydra.sweep.dir=<folder>")
        if key == "model" and default_choices(config_name, "model"):
            overrides += _model_overrides(value, several)
        elif key == "+experiment" and Path(unquote(value)).suffix == ".yaml":
            overrides.append(f"+experiment={word(Path(unquote(value)).stem)}")
        elif key == "benchmarks" and config_name == "train":
            overrides.append(f"benchmark={value}")
        elif key == "benchmarks" and config_name == "evaluate":
            # A choice too, if it names more than the defaults; else options of the others may be given.
            others = {*re.findall(r"\w+", value)} - {"null", *default_choices("evaluate", "benchmark")}
            is_chosen = any(other.startswith("benchmark=") for other in words)
            overrides += [argument] if is_chosen or not others else [f"benchmark={value}", argument]
        else:
            argument = _quoted_scores(argument)
            overrides.append(argument if several else _quoted_text(argument))
    if folder is None:
        return overrides
    if not is_folder(Path(folder)):
        raise UserError("there is no such folder", option="--config-dir", file=folder)
    return [*overrides, f"hydra.searchpath=[{quote_value(f'file://{Path(folder).absolute()}')}]"]


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
        if argument in ("-m", "--multirun"):
            flags["-m"] = ""
        elif name in ("--config-dir", "--cfg"):
            flags[name] = value if sign else next(rest, "")
            if not flags[name] or (name == "--cfg" and flags[name] != "job"):
                raise UserError(f"{name}: needs {'job' if name == '--cfg' else 'a value'} after it")
        else:
            others.append(argument)
    return flags, others


def _check_form(argument: str) -> None:
    """Refuse an option with dashes (`--seed 3`), for which the right form is shown, and what is no option."""
    flag, sign, value = argument.partition("=")
    checked_text(argument, flag)
    if flag.startswith("-"):
        name = flag.lstrip("-").replace("-", "_")
        option = f"{'+' if name in ADDED else ''}{name}={value if sign else '…'}"
        refuse_arguments([option])  # a token is not to be shown
        raise UserError(f"{flag}: options are written name=value, without dashes: {option}")
    if not flag.startswith("~") and not (flag and sign):
        raise UserError(f"{argument}: an option is written name=value, without blanks around =")


def _with_subject(words: Sequence[str], subject: str) -> list[str]:
    """The words, with an option name before bare first words; of an option that lists, before all of them."""
    lists = subject in ("runs", "models", "texts")
    bare_word = re.compile(r"[^-+=][^=]*" if lists else r"[^-+=~][^=]*")
    first = words if lists else words[: bool(subject)]
    bare = [w for w in first if bare_word.fullmatch(w) or (lists and Path(w).exists())]
    if not bare:
        return [*words]
    rest = [w for w in words if w not in bare] if lists else words[1:]
    return [f"{subject}=" + (f"[{','.join(map(word, bare))}]" if lists else bare[0]), *rest]


# ------------------------------------------------------------------ choices that are not in conf/


def _declare(words: Sequence[str], folder: str | None) -> None:
    """Tell Hydra of what `extensions=` declare, and of an experiment that is a file of the user's own.

    Args:
        folder: of `--config-dir`, whose files of options come before what modules declare.

    Raises:
        UserError: as :func:`overrides_of`.
    """
    store = partial(ConfigStore.instance().store, package="_global_")
    for argument in words:
        key, _, value = argument.partition("=")
        text = unquote(value)
        if key == "+experiment" and (path := Path(text)).suffix == ".yaml":
            if path.stem in config_names("experiment"):
                raise UserError(f"{argument}: there is an experiment {path.stem} already: rename the file")
            try:
                options = dict(parse_yaml(user_path(text, "experiment").read_text(encoding="utf-8")))
                refuse_values(options)
            except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
                raise UserError(f"{argument}: cannot be read as an experiment: {error}") from error
            store(path.stem, options, "experiment")
        names = text.strip("[]").split(",") if key == "extensions" else []
        for module in filter(None, (name.strip("'\" ") for name in names)):
            load_extensions([module])
            types = declarations_of(module)
            data = [t.setting.removeprefix("data.") for t in types if isinstance(t, DatasetType)]
            for declared in types:
                if not isinstance(declared, DatasetType):
                    group = "benchmark" if isinstance(declared, BenchmarkType) else "objective"
                    if folder is not None and Path(folder, group, f"{declared.name}.yaml").is_file():
                        continue
                    section = _defaults(declared.options) | {"name": declared.name}
                    section = {declared.name: section} if group == "benchmark" else section
                    store(declared.name, {group: section, "data": dict.fromkeys(data)}, group)


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


@cache
def config_names(group: str) -> list[str]:
    """The choices in a config group of the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def default_choices(config_name: str, group: str) -> list[str]:
    """The default choices of a config group in `conf/<config_name>.yaml`; empty for an absent group."""
    defaults = OmegaConf.select(OmegaConf.load(CONF / f"{config_name}.yaml"), "defaults", default=[])
    chosen = [entry[group] for entry in defaults if isinstance(entry, DictConfig) and group in entry]
    return [str(name) for choice in chosen for name in as_list(choice)]


# ------------------------------------------------------------------ choices by name


def _model_overrides(value: str, several: bool) -> list[str]:
    """`model=`: a name of `conf/model/` stays; a folder or Hub id becomes the path of a pretrained model."""
    names = unquote(value).split(",") if several else [unquote(value)]
    others = [name for name in names if name and name not in config_names("model")]
    if not any("/" in name or is_folder(user_path(name, "model")) for name in others):
        return [f"model={value}"]
    escape = literal if "\\${" in value else str
    return ["model=pretrained", "model.path=" + ",".join(quote_value(escape(model_folder(n))) for n in names)]


def split_choices(values: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Nested values from Python: choices by name as words, and all other values.

    Raises:
        UserError: naming an option whose value is no name.
    """
    words, others = [], {}
    groups = {"benchmarks", "extensions", *(path.name for path in CONF.iterdir() if path.is_dir())}
    for group, value in values.items():
        if isinstance(value, Mapping) or group not in groups:
            others[group] = value
            continue
        option = "benchmark" if group == "benchmarks" else group
        names = value if isinstance(value, list | tuple) else [value]
        listed = ",".join(word(checked_text(name, option)) for name in names)
        added = "+" if group in ADDED else ""
        words.append(f"{added}{group}=" + (listed if isinstance(value, str) else f"[{listed}]"))
    return words, others


# ------------------------------------------------------------------ texts in Hydra's grammar, and back


def word(text: str) -> str:
    """A text as a literal value in Hydra's grammar: `${…}` is not an interpolation."""
    return text if _PLAIN.fullmatch(text) else quote_value(literal(text))


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
    is_text = option in TEXTS or is_data_path(option)
    is_number = option == "queries" and value.isdigit()  # of explore; a file of search
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    if not is_text or is_number or is_quoted or value in ("", "null") or value[0] in "[{":
        return override
    return f"{key}={quote_value(value)}"


def _quoted_scores(override: str) -> str:
    """Scores of truncated embeddings (`…/dim=64`) in quotation marks: Hydra refuses a second bare `=`."""
    key, sign, value = override.partition("=")
    parts = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|([^\[\],'"\s=]+/dim=\d+)"""
    return key + sign + re.sub(parts, lambda m: quote_value(m[1]) if m[1] else m[0], value)
