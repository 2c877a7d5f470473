"""Composition of the configuration: parts of a mixture, values from Python, sizes by data."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from idiomtune.config.validation import nearest, options_called
from idiomtune.config.words import config_names, literal, quote_value
from idiomtune.errors import UserError
from idiomtune.io.files import checked_text, describe_type, user_path
from idiomtune.io.records import refuse_recorded_code
from idiomtune.io.secrets import hide_secrets, refuse_values
from idiomtune.io.tables import is_table, read_rows
from idiomtune.plugins.models import CONF
from idiomtune.plugins.options import as_list

log = logging.getLogger(__name__)

_CODE = "model.trust_remote_code"
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
    section: str, own: object, common: dict[str, Any], compose: Compose
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """A part, and the section `model` of its experiment."""
    if not isinstance(own, dict):
        options = f"{section}.data.train=<file> or {section}.experiment=<name>"
        raise UserError(f"{section}={own}: a part has options, such as {options}")
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
        raise UserError(f"{section}: experiment={experiment} has the objective {objective}, not {name}")
    options = merge_options(base["objective"], own.get("options") or {})
    part = merge_options(common, own) | {"experiment": experiment, "objective": objective, "options": options}
    return part, base["model"] if experiment else {}


def merge_options(base: object, changes: object) -> Any:
    """`changes` over `base`, section by section. An empty section of `base` takes any names."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: merge_options(base.get(key), value) for key, value in changes.items()}


def _check_idiom_tokens(
    config: dict[str, Any], parts: Mapping[str, dict[str, Any]], models: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that the model has the idiom tokens that experiments among the parts train."""
    needed = [name for name, model in models.items() if model.get("idiom_tokens")]
    chosen = (config.get("model") or {}).get("idiom_tokens")
    for name in needed:
        if chosen is None or (str(chosen).startswith("train/") and chosen != f"train/{name}"):
            raise UserError(
                f"objective.parts.{name}: experiment={parts[name]['experiment']} reads each of its idioms as "
                f"one token: give model.idiom_tokens={'train' if len(needed) > 1 else f'train/{name}'}, or "
                f"its objective alone: objective.parts.{name}.objective={parts[name]['objective']}"
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
    most = max(size for section, _, key in sized for size in section[key] if size != "more")
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


def _plain_values(value: object, option: str) -> object:
    """A value in OmegaConf's types; `${` in a text is literal."""
    if convert := getattr(value, "tolist", None):  # of NumPy
        value = convert()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str | int)]:
            raise UserError(f"a name must be text, got {describe_type(wrong[0])}", option=option)
        return {k: _plain_values(part, f"{option}.{k}") for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_values(part, option) for part in value]
    if value is None or isinstance(value, bool | float):
        return value
    return int(value) if isinstance(value, int) else literal(checked_text(value, option))


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


@dataclass(frozen=True)
class Composed:
    """The configuration of a program.

    Attributes:
        options: with the values, resolved, in plain containers.
        overrides: what was given, as on the command line.
        config: as Hydra composed it, with the values.
        hydra: Hydra's own options.
    """

    options: dict[str, Any]
    overrides: list[str]
    config: DictConfig
    hydra: DictConfig

    @property
    def experiment(self) -> str:
        """The `+experiment=`, or `default`."""
        return str(self.hydra.runtime.choices.get("experiment", "default"))


def compose(config_name: str, overrides: Sequence[str], values: Mapping[str, Any] | None = None) -> Composed:
    """`conf/<config_name>.yaml` with overrides of the command line, and with nested values from Python.

    Raises:
        UserError: if an override or a value is wrong, or is a secret.
    """
    with _explaining_errors():
        return fill(_by_hydra(config_name, overrides), values)


def fill(config: DictConfig, values: Mapping[str, Any] | None = None) -> Composed:
    """A configuration that Hydra has composed, with its own options, and with nested values."""
    hydra_options = config.hydra
    config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    config = with_values(config, plain_values(values or {}))
    overrides = hydra_options.overrides
    search = [word for word in overrides.hydra if word.startswith("hydra.searchpath=")]
    options = to_dict(config, throw_on_missing=True, search=search)
    refuse_values({"hydra": OmegaConf.to_container(hydra_options)})
    if variables := [*hydra_options.job.env_set]:
        option = f"hydra.job.env_set.{variables[0]}"
        raise UserError("would be on record with the run: set it in the shell", option=option)
    typed = [*overrides.task, *given_options(values or {})]
    names = {override.lstrip("+").partition("=")[0] for override in typed}
    if isinstance(model := options.get("model"), dict):
        refuse_recorded_code(model, "the configuration", repeats=_CODE in names, option=f"{_CODE}=true")
    return Composed(options, typed, config, hydra_options)


def compose_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<config_name>.yaml` with overrides, in plain containers; what must be given may be missing.

    Raises:
        UserError: if an override is wrong.
    """
    config = _by_hydra(config_name, overrides)
    config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    return to_dict(config, throw_on_missing=False)


@contextmanager
def _explaining_errors() -> Iterator[None]:
    """Within this context errors of Hydra and OmegaConf are :class:`UserError`s."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(hide_secrets(hydra_message(error))) from error


def _by_hydra(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """What Hydra composes, with its own options. A Hydra that is running already goes on after that."""
    file, running = CONF / config_name, GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with _explaining_errors(), initialize_config_dir(str(file.parent), version_base="1.3"):
            return hydra_compose(file.name, [*overrides], return_hydra_config=True)
    except UserError:
        raise
    except Exception as error:  # a mistake that Hydra does not expect, such as `=3`
        typed = hide_secrets(" ".join(overrides))
        raise UserError(f"the command line could not be understood ({typed}): {error}") from error
    finally:
        GlobalHydra.instance().clear()
        if running is not None:
            GlobalHydra.instance().initialize(running)


def to_dict(config: DictConfig, *, throw_on_missing: bool, search: Sequence[str] = ()) -> dict[str, Any]:
    """A composed configuration as plain, resolved containers: parts of a mixture filled in, sizes chosen.

    Args:
        throw_on_missing: refuse options that must be given and are not.
        search: Hydra's search path, as an override, where experiments of a mixture's parts may be.

    Raises:
        UserError: if a part is wrong, an option is missing, or it is a secret.
    """
    if throw_on_missing and (missing := sorted(OmegaConf.missing_keys(config))):
        raise UserError("must be given", option=", ".join(missing))
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    refuse_values(resolved)
    options = {str(key): value for key, value in resolved.items()}
    return resolve_by_data_size(fill_parts(options, lambda override: _composed_beside([override, *search])))


def _composed_beside(overrides: Sequence[str]) -> dict[str, Any]:
    """Objective and model of the training configuration with these overrides."""
    config = _by_hydra("train", overrides)
    sections = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("objective", "model")}
    return {name: section for name, section in sections.items() if isinstance(section, dict)}


# The experts' mode depends on whether there are images; `conf/` says so by this.
OmegaConf.register_new_resolver(
    "experts_mode", lambda clip: "experts_text" if clip is None else "experts_image", replace=True
)


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
    if isinstance(error, OverrideParseException) and not re.match(r"\S+=", error.override):
        return f"{error.override}: an option is written name=value, without blanks around ="
    if several := _SEVERAL.match(str(error)):
        override, name, values = several.groups()
        right = f"a list is {name}=[{values}], a text \"{name}='{values}'\""
        return f"{override}: with -m, each of these values is a separate run; {right}"
    reason = f"\n{cause}" if isinstance(cause, OmegaConfBaseException) else ""
    text = f"{error}{reason}".partition("Config search path:")[0]
    # Its advice about `+` is wrong for options, and only right for experiments and debug.
    lines = [line for line in text.splitlines() if not line.startswith("To append to your config")]
    if isinstance(error, OverrideParseException):
        example = "\"data.train=['my (1).csv', other.csv]\""
        lines.append(f"A value with a comma, = or brackets needs quotation marks of its own: {example}")
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
