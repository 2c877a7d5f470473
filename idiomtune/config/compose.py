"""Composition of the configuration: parts of a mixture, values from Python, sizes by data."""

from __future__ import annotations

import json
import logging
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from idiomtune.config.validation import nearest, options_called
from idiomtune.declarations.models import CONF
from idiomtune.declarations.options import as_list
from idiomtune.errors import UserError
from idiomtune.io.files import checked_text, describe_type, user_path
from idiomtune.io.secrets import refuse_values
from idiomtune.io.tables import is_table, read_rows

log = logging.getLogger(__name__)

_MOST_BITS = 1024  # of a number
Compose = Callable[..., Mapping[str, Any]]  # (override) → the configuration that it makes


def fill_parts(config: dict[str, Any], compose: Compose) -> dict[str, Any]:
    """The configuration, with all options of a mixture's parts filled in from experiments and defaults.

    Of an experiment the objective is taken with its options; what it says of the model, the trainer and the
    benchmarks is not, since a run has one of each.

    Args:
        config: the composed configuration; without a mixture it comes back as it is.
        compose: raises UserError for a choice that there is not.

    Raises:
        UserError: naming the part.
    """
    objective = config.get("objective")
    if not isinstance(objective, dict) or objective.get("name") != "mixture":
        return config
    parts, common = objective.get("parts"), objective.get("each_part")
    if not isinstance(parts, dict) or not isinstance(common, dict):
        return config  # refused where types are checked
    filled, models = {}, {}
    for key, options in parts.items():
        name = str(key)
        filled[name], models[name] = _fill_part(f"objective.parts.{name}", options, common, compose)
    _check_idiom_tokens(config, filled, models)
    return config | {"objective": objective | {"parts": filled}}


def _fill_part(
    section: str, own: Any, common: dict[str, Any], compose: Compose
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """A part, and the section `model` of its experiment."""
    if not isinstance(own, dict):
        raise UserError(
            f"{section}={own}: a part has options, such as {section}.data.train=<file> or "
            f"{section}.experiment=<name>"
        )
    experiment, name = own.get("experiment"), own.get("objective")
    override = f"+experiment={experiment}" if experiment else f"objective={name or common.get('objective')}"
    try:
        base = compose(override)
    except UserError as error:
        raise UserError(f"{section}: {error}") from error
    objective = base["objective"]["name"]
    if objective == "mixture":
        raise UserError(f"{section}: {override.lstrip('+')} is a mixture; give its parts next to this one")
    if experiment and name not in (None, objective):
        raise UserError(
            f"{section}: experiment={experiment} has the objective {objective}, not {name}: give one of them"
        )
    options = merge_options(base["objective"], own.get("options") or {})
    part = merge_options(common, own) | {"experiment": experiment, "objective": objective, "options": options}
    return part, base["model"] if experiment else {}


def merge_options(base: Any, changes: Any) -> Any:
    """`changes` over `base`, section by section. An empty section of `base` takes any names."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: merge_options(base.get(key), value) for key, value in changes.items()}


def _check_idiom_tokens(
    config: dict[str, Any], parts: Mapping[str, dict[str, Any]], models: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that the model has the idiom tokens that experiments among the parts train."""
    needed = {
        name: model["idiom_tokens_start"] for name, model in models.items() if model.get("idiom_tokens")
    }
    chosen = (config.get("model") or {}).get("idiom_tokens")
    of_one = chosen if isinstance(chosen, str) and chosen.startswith("train/") else None
    for name in needed:
        if chosen is None or (of_one and of_one != f"train/{name}"):
            part = parts[name]
            raise UserError(
                f"objective.parts.{name}: experiment={part['experiment']} reads each of its idioms as "
                f"one token, but model.idiom_tokens={'null' if chosen is None else chosen}: give "
                f"model.idiom_tokens={'train' if len(needed) > 1 else f'train/{name}'}, or give "
                "only its objective, which needs none: "
                f"objective.parts.{name}.objective={part['objective']}"
            )
    if len(set(needed.values())) > 1:
        starts = ", ".join(f"objective.parts.{name}: {start}" for name, start in needed.items())
        raise UserError(
            f"model.idiom_tokens_start: experiments among the parts need different tokens ({starts}), and a "
            "model has one kind: leave one of them out, or name its objective instead"
        )


# Options whose default depends on how much data there is.


def resolve_by_data_size(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration, with one value for each option whose default depends on the number of training rows.

    `{500: 30, more: 3}` is 30 for up to 500 rows of `data.train`, and 3 for more, or for data of the Hub.
    """
    options = [(config[name], name) for name in ("trainer", "eval") if isinstance(config.get(name), dict)]
    sized = [
        (o, name, key)
        for o, name in options
        for key in o
        if isinstance(o[key], dict) and {"more"} == {size for size in o[key] if not isinstance(size, int)}
    ]
    if not sized:
        return config
    train = as_list(config["data"]["train"]) or []
    most: Any = max(size for section, _, key in sized for size in section[key] if size != "more")
    number, chosen = _count_rows(train, most), []
    for section, name, key in sized:
        values: dict[Any, Any] = section[key]
        size = min((size for size in values if size != "more" and number <= size), default="more")
        section[key] = values[size]
        chosen.append(f"{name}.{key}={'null' if values[size] is None else values[size]}")
    if number:
        rows = f"{number} rows of data.train" if number <= most else f"more than {most} rows of data.train"
        log.info("%s, so by default %s", rows, ", ".join(chosen))
    return config


def _count_rows(names: Sequence[str], most: int) -> int:
    """The number of rows of tables and folders of tables, counted up to `most` + 1."""
    number = 0
    with suppress(UserError, OSError, TypeError):  # what is wrong with them is reported when they are read
        for name in names:
            if name.startswith("hf:"):
                return most + 1
            path = user_path(name, "data.train")
            for table in filter(is_table, path.iterdir()) if path.is_dir() else [path]:
                number += sum(1 for _ in islice(read_rows(table), most + 1 - number))
    return number


# Composing `conf/` with overrides by Hydra, and explaining its errors.

# What Hydra says of two slips, in words of its configuration files and with backslashes that no shell takes.
_SEVERAL = re.compile(r"Ambiguous value for argument '(([^=']+)=(.*))'$", re.MULTILINE)
# What word processors and Windows write, and what Hydra can read.
_AS_TYPED = dict(zip(map(ord, "“”„‘’–—−\xa0\u202f＝，"), '"""\'\'---  =,', strict=True))
_AS_TYPED |= dict.fromkeys(map(ord, "\r\ufeff\u200b\u200e\u200f"), "")
_SECTION = re.compile(r"Error merging override ([\w.]+)=.*\nCannot merge DictConfig with", re.DOTALL)
_TWICE = re.compile(r"Multiple values for (\S+)\. To override a value use 'override [^:]+: (.*)'")


def with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """The composed configuration with nested values, from :func:`plain_values`, in their places.

    Raises:
        UserError: naming the section of a benchmark or tracker that is not chosen.
    """
    for group in ("benchmark", "tracking"):
        for name, section in (values.get(group) or {}).items():
            if name not in config.get(group, {}) and not (isinstance(section, Mapping) and "name" in section):
                raise UserError(f"is not chosen: give its name too, {group}={name}", option=f"{group}.{name}")
    filled: DictConfig = OmegaConf.create(merge_options(OmegaConf.to_container(config), values))
    return filled


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values from Python in OmegaConf's types; texts are literal.

    Raises:
        UserError: naming the option, for a value that no option has.
    """
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = _plain_values(value, name)
        except RecursionError:
            raise UserError("contains itself", option=name) from None
    return plain


def _plain_values(value: Any, option: str = "") -> Any:
    """A value in OmegaConf's types; `${` in a text is literal."""
    if hasattr(value, "dtype"):  # of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str | int)]:
            raise UserError(f"a name must be text, got {describe_type(wrong[0])}", option=option)
        return {k: _plain_values(part, f"{option}.{k}".lstrip(".")) for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_values(part, option) for part in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise UserError("has too many digits", option=option)
        return int(value)
    if isinstance(value, str) and value == "???":
        raise UserError("??? is no value, but what OmegaConf takes for a missing one", option=option)
    return literal(checked_text(value, option))


def given_options(values: Mapping[str, Any], section: str = "") -> list[str]:
    """Nested values as overrides, `trainer.batch_size=64`, for records and a run's name."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += given_options(value, f"{section}{name}.")
        else:
            text = quote_value(literal(value)) if isinstance(value, str) else json.dumps(value, default=str)
            lines.append(f"{section}{name}={text}")
    return lines


def compose_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<config_name>.yaml` with overrides, for use from Python.

    Raises:
        UserError: if an override is wrong.
    """
    register_resolvers()
    with _hydra_context():
        return to_dict(hydra.compose(config_name, list(overrides)), throw_on_missing=False)


@contextmanager
def _hydra_context() -> Iterator[None]:
    """Within this context Hydra is initialised (on `conf/` if it was not), and its errors are explained."""
    has_begun = GlobalHydra.instance().is_initialized()
    try:
        with nullcontext() if has_begun else hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(hydra_message(error)) from error


def to_dict(config: DictConfig, *, throw_on_missing: bool) -> dict[str, Any]:
    """A composed configuration as plain, resolved containers: parts of a mixture filled in, sizes chosen.

    Args:
        throw_on_missing: refuse options that must be given and are not.

    Raises:
        UserError: if a part is wrong, an option is missing, or it is a secret.
    """
    if throw_on_missing and (missing := sorted(OmegaConf.missing_keys(config))):
        raise UserError("must be given", option=", ".join(missing))
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    refuse_values(resolved)
    filled = fill_parts({str(key): value for key, value in resolved.items()}, _composed_beside)
    return resolve_by_data_size(filled)


def _composed_beside(override: str) -> dict[str, Any]:
    """Objective and model of the training configuration with this override."""
    with _hydra_context():
        config = hydra.compose("config", [override])
    sections = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("objective", "model")}
    return {name: section for name, section in sections.items() if isinstance(section, dict)}


# Texts as values of Hydra's override grammar, and back.


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


def config_names(group: str) -> list[str]:
    """The choices in a config group of the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def default_choices(config_name: str, group: str) -> list[str]:
    """The default choices of a config group in `conf/<config_name>.yaml`; empty for an absent group."""
    config = OmegaConf.to_container(OmegaConf.load(CONF / f"{config_name}.yaml"))
    assert isinstance(config, dict)
    chosen = [entry[group] for entry in config["defaults"] if isinstance(entry, dict) and group in entry]
    return [str(name) for choice in chosen for name in ([choice] if isinstance(choice, str) else choice)]


def help_text(config_name: str) -> str:
    """The text of `--help`. Hydra's own way lists all config groups first and takes twice as long."""
    register_resolvers()
    (name,) = default_choices(config_name, "override hydra/help")
    config = OmegaConf.create({"hydra": {"help": OmegaConf.load(CONF / "hydra" / "help" / f"{name}.yaml")}})
    return str(config.hydra.help.template)


def register_resolvers() -> None:
    """Register the interpolations that `conf/` uses in addition to Hydra's."""
    resolvers: dict[str, Callable[..., Any]] = {
        "experiments": lambda: " | ".join(config_names("experiment")),
        "searches": lambda: " | ".join(config_names("sweep")),
        "experts_mode": lambda clip: "experts_text" if clip is None else "experts_image",
        "models": _models,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, use_cache=False, replace=True)


def _models() -> str:
    """The names of the models, wrapped for the help texts."""
    names = " | ".join(name for name in config_names("model") if name != "pretrained")
    return textwrap.fill(names, width=105, subsequent_indent=" " * 17, break_on_hyphens=False)


def hydra_message(error: Exception) -> str:
    """An error of Hydra's as a message for people.

    For an unknown option or choice it names the likely intended one; for others it has Hydra's message and
    its cause, without advice that does not apply here.
    """
    cause = error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and isinstance(cause.parent_node, DictConfig):
        section, _, name = str(cause.full_key).rpartition(".")
        parent: Any = OmegaConf.to_container(cause.parent_node, resolve=False)
        siblings = {str(key): value for key, value in parent.items() if key != "hydra"}
        if not section and (options := options_called(name, siblings)):
            return f"{name}: there is no such option. Did you mean {' or '.join(options)}?"
        return _unknown("option", section, name, list(siblings))
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if names := config_names(group):
            return _unknown("choice", group, name, names)
    if isinstance(error, OverrideParseException):
        typed = re.sub(r"\s*=\s*", "=", error.override.translate(_AS_TYPED), count=1).strip().lstrip("-")
        odd = dict.fromkeys(c for c in error.override if ord(c) in _AS_TYPED)
        has = [f"{c!a} ({unicodedata.name(c, 'the end of a Windows line')})" for c in odd]
        if typed != error.override:
            return f"{error.override!r} has {' and '.join(has) or 'blanks around ='}: type {typed}"
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        return f"{error.override}: an option is written name=value, without blanks around ="
    if several := _SEVERAL.match(str(error)):
        override, name, values = several.groups()
        return (
            f"{override}: with -m, each of these values is a separate run. Write one list in brackets, "
            f"{name}=[{values}]; text with a comma in quotation marks, \"{name}='{values}'\""
        )
    if twice := _TWICE.match(str(error)):
        group, name = twice.groups()
        return (
            f"{group}={name}: one is chosen already, which this replaces without a + before it: "
            f"{group}={name} (in a file of yours: `override /{group}: {name}`)"
        )
    if whole := _SECTION.match(f"{error}\n{cause}"):
        return f"{whole[1]}: is a section, whose options are given by name: {whole[1]}.<option>=…"
    reason = f"\n{cause}" if isinstance(cause, OmegaConfBaseException) else ""
    text = f"{error}{reason}".partition("Config search path:")[0]
    # Its advice about `+` is wrong for options, and only right for experiments and debug.
    lines = [line for line in text.splitlines() if not line.startswith("To append to your config")]
    if isinstance(error, OverrideParseException):
        lines.append(
            "A value with a comma, = or brackets, such as a path, needs quotation marks within those of the "
            "shell: \"data.train=['my (1).csv', other.csv]\""
        )
    return "\n".join(lines).strip()


def _unknown(kind: str, section: str, name: str, choices: Sequence[str]) -> str:
    """The message for an unknown option or choice, with the existing ones."""
    if kind == "option":
        override, sign, parent = f"{section}.{name}".lstrip("."), ".", section or "the configuration"
    else:
        override, sign, parent = f"{section}={name}", "=", section
    near = nearest(name, choices)
    guess = f" Did you mean {section}{sign if section else ''}{near[0]}?" if near else ""
    # What has a slash, or is a folder, was taken as such before.
    more = "; it also takes a folder, or <owner>/<name> on the Hub" if override.startswith("model=") else ""
    return f"{override}: there is no such {kind}.{guess}" + (
        f"\n{parent} has {', '.join(choices)}{more}" if choices else ""
    )
