"""A composed configuration checked, with messages for people."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from idiomtune.errors import UserError
from idiomtune.io.files import flat, show_value
from idiomtune.plugins.options import ConfigSection

Settings = TypeVar("Settings", bound=ConfigSection)


def validate(kind: type[Settings], config: dict[str, Any], *, section: str = "") -> Settings:
    """The composed configuration as settings.

    Args:
        section: its place, if it is only a part.

    Raises:
        UserError: naming each wrong option, its value and what is allowed.
    """
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        messages: dict[str, list[str]] = {}  # option → the messages of its type's branches
        for problem in error.errors():
            names, siblings = _option(problem["loc"], config)
            option = ".".join([*([section] if section else []), *names])
            text = f"{problem['msg'].replace('Input should', 'must')}, got {show_value(problem['input'])}"
            if problem["type"] == "extra_forbidden":
                text = no_such_option(option, siblings)
            elif problem["type"] == "value_error":
                text = str(problem["ctx"]["error"])
            elif problem["type"] == "missing":
                text = "is missing"
            if text not in messages.setdefault(option, []):
                messages[option].append(text)
        lines = [f"  {option}: ".removeprefix("  : ") + "; or ".join(messages[option]) for option in messages]
        plural = "s are" if len(lines) > 1 else " is"
        raise UserError(f"{len(lines)} setting{plural} wrong:\n" + "\n".join(lines)) from None


def no_such_option(option: str, siblings: Mapping[Any, Any]) -> str:
    """The message for an unknown option, with the likely one.

    Args:
        siblings: the options of its section, with theirs.
    """
    above, dot, name = option.rpartition(".")
    others = {str(key): value for key, value in siblings.items() if key not in (name, "hydra")}
    near = [] if above else options_called(name, others)
    near = near or [f"{above}{dot}{key}" for key in nearest(name, [*others])]
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"there is no such option.{guess}\n{above or 'the configuration'} has {', '.join(others)}"


# What other libraries call some options.
_CALLED = {
    "lr": "learning_rate",
    "epochs": "max_epochs",
    "num_train_epochs": "max_epochs",
    "steps": "max_steps",
}


def nearest(name: str, names: Sequence[str]) -> list[str]:
    """The existing option nearest to an unknown name, if any."""
    named = _CALLED.get(name, name)
    return [named] if named in names else difflib.get_close_matches(name, names, n=1)


def options_called(name: str, config: Mapping[str, Any]) -> list[str]:
    """Options of this name in any section, for a name without its section."""
    name = _CALLED.get(name, name)
    parts = [f".{option}.".partition(f".{name}.") for option in flat(config)]
    return [*dict.fromkeys(f"{above}.{name}".lstrip(".") for above, middle, _ in parts if middle)][:3]


def _option(location: tuple[int | str, ...], config: dict[str, Any]) -> tuple[list[str], dict[Any, Any]]:
    """An option's name without the parts that pydantic adds (branches: `list[str]`), and its section."""
    names: list[str] = []
    section: dict[Any, Any] = config
    value: object = config
    for part in location:
        if not isinstance(value, dict) or not isinstance(part, str) or part == "[key]":
            break
        names.append(part)
        section, value = value, value.get(part)
    return names, section


def no_such_score(key: str, keys: Sequence[str], run: str = "this run") -> str:
    """The message for an unknown score, with similar existing ones."""
    close = difflib.get_close_matches(key, keys, n=3, cutoff=0.3)
    return f"{run} has no score {key!r}; the nearest it has: {', '.join(close) or 'none'}"
