"""Composition of the configuration: parts of a mixture, values from Python, sizes by data."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from idiomtune.config.validation import nearest, no_such_option
from idiomtune.config.words import config_names, literal, quote_value
from idiomtune.errors import UserError
from idiomtune.io.files import checked_text, describe_type, flat, user_path
from idiomtune.io.records import refuse_recorded_code
from idiomtune.io.secrets import hide_secrets, refuse_values
from idiomtune.io.tables import is_table, read_rows
from idiomtune.plugins.models import CONF
from idiomtune.plugins.options import as_list

log = logging.getLogger(__name__)

_CODE = "model.trust_remote_code"


def fill_parts(config: dict[str, Any], search: Sequence[str]) -> dict[str, Any]:
    """The configuration, with all options of a mixture's parts filled in from experiments and defaults.

    Of an experiment the objective is taken with its options; what it says of the model, the trainer and the
    benchmarks is not, since a run has one of each.

    Args:
        config: the composed configuration; without a mixture it comes back as it is.
        search: Hydra's search path, as an override, where experiments may be.

    Raises:
        UserError: naming the part.
    """
    objective = config.get("objective")
    if not isinstance(objective, dict) or objective.get("name") != "mixture":
        return config
    parts, common = objective.get("parts"), objective.get("each_part")
    if not isinstance(parts, dict) or not isinstance(common, dict):
        return config  # refused where types are checked
    tokens = (config.get("model") or {}).get("idiom_tokens")
    filled = {str(name): _fill_part(str(name), part, common, tokens, search) for name, part in parts.items()}
    return config | {"objective": objective | {"parts": filled}}


def _fill_part(
    part: str, own: object, common: dict[str, Any], idiom_tokens: object, search: Sequence[str]
) -> object:
    section = f"objective.parts.{part}"
    if not isinstance(own, dict):
        return own
    experiment, name = own.get("experiment"), own.get("objective")
    override = f"+experiment={experiment}" if experiment else f"objective={name or common.get('objective')}"
    try:
        config = by_hydra("train", [override, *search])
        base: Any = OmegaConf.to_container(config.objective, resolve=True)
    except UserError as error:
        raise UserError(f"{section}: {error}") from error
    objective = base["name"]
    if objective == "mixture":
        raise UserError(f"{section}: {override.lstrip('+')} is a mixture; give its parts next to this one")
    if experiment and name not in (None, objective):
        raise UserError(f"{section}: experiment={experiment} has the objective {objective}, not {name}")
    of_others = str(idiom_tokens).startswith("train/") and idiom_tokens != f"train/{part}"
    if experiment and config.model.idiom_tokens and (idiom_tokens is None or of_others):
        raise UserError(
            f"{section}: experiment={experiment} reads each of its idioms as one token: give "
            f"model.idiom_tokens=train/{part} (=train for those of several parts), or its objective alone: "
            f"{section}.objective={objective}"
        )
    options = merge_options(base, own.get("options") or {})
    return merge_options(common, own) | {"experiment": experiment, "objective": objective, "options": options}


def merge_options(base: object, changes: object) -> Any:
    """`changes` over `base`, section by section. An empty section of `base` takes any names."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: merge_options(base.get(key), value) for key, value in changes.items()}


# Options whose default depends on how much data there is.


def resolve_by_data_size(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration, with one value for each option whose default depends on the number of training rows.

    `{500: 30, more: 3}` is 30 for up to 500 rows of `data.train`, and 3 for more, or for data of the Hub.
    """
    sized = [
        (name, key)
        for name in ("trainer", "eval")
        if isinstance(config.get(name), dict)
        for key, value in config[name].items()
        if isinstance(value, dict) and {"more"} == {size for size in value if not isinstance(size, int)}
    ]
    if not sized:
        return config
    most = max(size for name, key in sized for size in config[name][key] if size != "more")
    number, chosen = _count_rows(as_list(config["data"]["train"]) or [], most), []
    for name, key in sized:
        values: dict[Any, Any] = config[name][key]
        value = values[min((size for size in values if size != "more" and number <= size), default="more")]
        config[name][key] = value
        chosen.append(f"{name}.{key}={'null' if value is None else value}")
    if number:
        rows = f"{number} rows of data.train" if number <= most else f"more than {most} rows of data.train"
        log.info("%s, so by default %s", rows, ", ".join(chosen))
    return config


def _count_rows(names: Sequence[str], most: int) -> int:
    """The number of rows of tables and folders of tables, counted up to `most` + 1."""
    with suppress(UserError, OSError, TypeError):  # what is wrong with them is reported when they are read
        if any(name.startswith("hf:") for name in names):
            return most + 1
        paths = [user_path(name, "data.train") for name in names]
        tables = [
            t for path in paths for t in (filter(is_table, path.iterdir()) if path.is_dir() else [path])
        ]
        return sum(1 for _ in islice(chain.from_iterable(map(read_rows, tables)), most + 1))
    return 0


# Values from Python, beside the words.


def _with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """The composed configuration with nested values from Python, whose texts are literal, in their places.

    Raises:
        UserError: naming the option, for a value that no option has; naming the section of a benchmark or
            tracker that is not chosen.
    """
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            plain[name] = _plain_value(value, name)
        except RecursionError:
            raise UserError("contains itself", option=name) from None
    for group in ("benchmark", "tracking"):
        for name, section in (plain.get(group) or {}).items():
            if name not in config.get(group, {}) and not (isinstance(section, Mapping) and "name" in section):
                raise UserError(f"is not chosen: give its name too, {group}={name}", option=f"{group}.{name}")
    filled: DictConfig = OmegaConf.create(merge_options(OmegaConf.to_container(config), plain))
    return filled


def _plain_value(value: object, option: str) -> object:
    """A value in OmegaConf's types; `${` in a text is literal."""
    if convert := getattr(value, "tolist", None):  # of NumPy
        value = convert()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str | int)]:
            raise UserError(f"a name must be text, got {describe_type(wrong[0])}", option=option)
        return {k: _plain_value(part, f"{option}.{k}") for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(part, option) for part in value]
    if value is None or isinstance(value, bool | float):
        return value
    return int(value) if isinstance(value, int) else literal(checked_text(value, option))


def _as_words(values: Mapping[str, Any]) -> list[str]:
    """Nested values as overrides, `trainer.batch_size=64`, for records and a run's name."""
    words = []
    for option, value in flat(values).items():
        if not isinstance(value, Mapping):  # an empty one
            text = quote_value(literal(value)) if isinstance(value, str) else json.dumps(value, default=str)
            words.append(f"{option}={text}")
    return words


# Composing `conf/` with overrides by Hydra, and explaining its errors.


@dataclass(frozen=True)
class Composed:
    """The configuration of a program.

    Attributes:
        options: with the values, resolved, in plain containers.
        overrides: what was given, as on the command line.
        config: as Hydra composed it, with the values.
        hydra: Hydra's own options.
        experiment: the `+experiment=`, or `default`.
    """

    options: dict[str, Any]
    overrides: list[str]
    config: DictConfig
    hydra: DictConfig
    experiment: str


@contextmanager
def explaining_errors() -> Iterator[None]:
    """Within this context errors of Hydra and OmegaConf are :class:`UserError`s."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(hide_secrets(_message(error))) from error


@explaining_errors()
def by_hydra(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """`conf/<config_name>.yaml` with overrides, and Hydra's own options. A running Hydra goes on after that.

    Raises:
        UserError: if an override is wrong.
    """
    file, running = CONF / config_name, GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
            return hydra.compose(file.name, [*overrides], return_hydra_config=True)
    except ValueError as error:  # of a group whose choice is no name, `trainer=3`
        raise UserError(f"{error}: {hide_secrets(' '.join(overrides))}") from error
    finally:
        GlobalHydra.instance().hydra = running


@explaining_errors()
def fill(config: DictConfig, values: Mapping[str, Any] | None = None, *, is_whole: bool = True) -> Composed:
    """A configuration of :func:`by_hydra` with nested values from Python, resolved.

    The parts of a mixture are filled in, and the sizes of the data chosen.

    Args:
        is_whole: refuse options that must be given and are not.

    Raises:
        UserError: if a value or a part is wrong, an option is missing, or it is a secret.
    """
    hydra_options, overrides = config.hydra, config.hydra.overrides
    config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    config = _with_values(config, values or {})
    if is_whole and (missing := sorted(OmegaConf.missing_keys(config))):
        raise UserError("must be given", option=", ".join(missing))
    options: Any = OmegaConf.to_container(config, resolve=True)
    refuse_values(options | {"hydra": OmegaConf.to_container(hydra_options)})
    search = [word for word in overrides.hydra if word.startswith("hydra.searchpath=")]
    options = resolve_by_data_size(fill_parts(options, search))
    typed = [*overrides.task, *_as_words(values or {})]
    names = {override.lstrip("+").partition("=")[0] for override in typed}
    if isinstance(model := options.get("model"), dict):
        refuse_recorded_code(model, "the configuration", repeats=_CODE in names, option=f"{_CODE}=true")
    experiment = str(hydra_options.runtime.choices.get("experiment", "default"))
    return Composed(options, typed, config, hydra_options, experiment)


def compose_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<config_name>.yaml` with overrides, in plain containers; what must be given may be missing.

    Raises:
        UserError: if an override is wrong.
    """
    return fill(by_hydra(config_name, overrides), is_whole=False).options


# The experts' mode depends on whether there are images; `conf/` says so by this.
OmegaConf.register_new_resolver(
    "experts_mode", lambda clip: "experts_text" if clip is None else "experts_image", replace=True
)


def _message(error: Exception) -> str:
    """An error of Hydra's as a message for people.

    For an unknown option or choice it names the likely intended one; for others it has Hydra's message and
    its cause, without the search path.
    """
    cause = error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and isinstance(cause.parent_node, DictConfig):
        section: Any = OmegaConf.to_container(cause.parent_node)
        return f"{cause.full_key}: {no_such_option(str(cause.full_key), section)}"
    group, _, name = str(getattr(error, "missing_cfg_file", "")).rpartition("/")
    if group and (choices := config_names(group)):
        near = "".join(f" Did you mean {group}={choice}?" for choice in nearest(name, choices))
        # What has a slash, or is a folder, was taken as such before.
        more = "; it also takes a folder, or <owner>/<name> on the Hub" if group == "model" else ""
        return f"{group}={name}: there is no such choice.{near}\n{group} has {', '.join(choices)}{more}"
    reason = f"\n{cause}" if isinstance(cause, OmegaConfBaseException) else ""
    if isinstance(error, OverrideParseException):
        reason = f"\nA value with a comma, = or brackets needs quotation marks of its own: {error.override}"
    return f"{error}{reason}".partition("Config search path:")[0].strip()
