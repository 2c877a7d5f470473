"""A composed configuration checked, with messages for people."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from idiomtune.errors import UserError
from idiomtune.io.files import show_value
from idiomtune.plugins.options import ConfigSection

Settings = TypeVar("Settings", bound=ConfigSection)


def check(kind: type[Settings], config: dict[str, Any], *, section: str = "") -> Settings:
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
            option = ".".join([*([section] if section else []), *_option(problem["loc"], config)])
            texts = messages.setdefault(option, [])
            unknown = problem["type"] == "extra_forbidden"
            if (text := _no_such_option(option, config) if unknown else _message(problem)) not in texts:
                texts.append(text)
        lines = [
            f"  {option}: {text}" if option else f"  {text}"
            for option, texts in messages.items()
            for text in _merge_messages(texts)
        ]
        plural = "s are" if len(lines) > 1 else " is"
        raise UserError(f"{len(lines)} setting{plural} wrong:\n" + "\n".join(lines)) from None


def _message(problem: ErrorDetails) -> str:
    """The message for one of pydantic's errors."""
    match problem["type"]:
        case "missing":
            return "is missing"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "literal_error":
            return f"must be one of {problem['ctx']['expected']}, got {show_value(problem['input'])}"
        case _:
            return f"{problem['msg'].replace('Input should', 'must')}, got {show_value(problem['input'])}"


def _no_such_option(option: str, config: dict[str, Any]) -> str:
    """The message for an unknown option, with the likely one."""
    *sections, name = option.split(".")
    section: object = config
    for part in sections:
        section = section.get(part) if isinstance(section, dict) else None
    others = [str(key) for key in section if key != name] if isinstance(section, dict) else []
    if near := nearest(name, others):
        return f"there is no such option. Did you mean {'.'.join([*sections, *near])}?"
    elsewhere = [key for key in options_called(name, config) if key != option] if not sections else []
    return "there is no such option" + (f". Did you mean {' or '.join(elsewhere)}?" if elsewhere else "")


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
    return [key for key in _option_names(config) if key.rpartition(".")[2] == name][:3]


def _option_names(section: Mapping[Any, Any], above: str = "") -> Iterator[str]:
    for name, value in section.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from _option_names(value, f"{above}{name}.")


def _merge_messages(texts: list[str]) -> list[str]:
    """One message for an option with several types, if the messages differ only in the required type."""
    parts = [text.rpartition(", got ") for text in texts]
    if len({got for _, _, got in parts}) > 1 or not all(rule.startswith("must be ") for rule, _, _ in parts):
        return texts
    rule = ", or ".join(rule.removeprefix("must be ") for rule, _, _ in parts)
    return [f"must be {rule}, got {parts[0][2]}"]


def _option(location: tuple[int | str, ...], config: dict[str, Any]) -> list[str]:
    """The parts of an option's name, without those that pydantic adds (branches of a union: `list[str]`)."""
    names: list[str] = []
    value: object = config
    for part in location:
        if not isinstance(value, dict) or not isinstance(part, str) or part == "[key]":
            break
        names.append(part)
        value = value.get(part)
    return names


def no_such_score(key: str, keys: Sequence[str], run: str = "this run") -> str:
    """The message for an unknown score, with similar existing ones."""
    close = difflib.get_close_matches(key, keys, n=3, cutoff=0.3)
    return f"{run} has no score {key!r}; the nearest it has: {', '.join(close) or 'none'}"
