"""A composed configuration checked, with messages for people; secrets refused."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from idiomtune.declarations.options import Section
from idiomtune.errors import UserError

Settings = TypeVar("Settings", bound=Section)


def check(kind: type[Settings], config: dict[str, Any], *, section: str = "") -> Settings:
    """The composed configuration as settings.

    Args:
        section: its place, if it is only a part.

    Raises:
        UserError: naming each option that is wrong, what it got, and what it takes.
    """
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        messages: dict[str, list[str]] = {}  # option → the messages of its type's branches
        for problem in error.errors():
            option = ".".join([*([section] if section else []), *_option(problem["loc"], config)])
            texts = messages.setdefault(option, [])
            if (text := _message(problem)) not in texts:
                texts.append(text)
        lines = [
            f"  {option}: {text}" if option else f"  {text}"
            for option, texts in messages.items()
            for text in _merged(texts)
        ]
        plural = "s are" if len(lines) > 1 else " is"
        raise UserError(f"{len(lines)} setting{plural} wrong:\n" + "\n".join(lines)) from None


def _message(problem: Any) -> str:
    """What is wrong with a value, of pydantic's record of it."""
    match problem["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "there is no such option"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "literal_error":
            return f"must be one of {problem['ctx']['expected']}, got {problem['input']!r}"
        case _:
            return f"{problem['msg'].replace('Input should', 'must')}, got {problem['input']!r}"


def _merged(texts: list[str]) -> list[str]:
    """The messages of an option with several types, as one if they differ only in what it must be."""
    parts = [text.rpartition(", got ") for text in texts]
    if len({got for _, _, got in parts}) > 1 or not all(what.startswith("must be ") for what, _, _ in parts):
        return texts
    what = ", or ".join(what.removeprefix("must be ") for what, _, _ in parts)
    return [f"must be {what}, got {parts[0][2]}"]


def _option(place: tuple[int | str, ...], config: dict[str, Any]) -> list[str]:
    """The parts of an option's name, without those that pydantic adds (branches of a union: `list[str]`)."""
    names: list[str] = []
    value: Any = config
    for part in place:
        if not isinstance(value, dict) or not isinstance(part, str) or part == "[key]":
            break
        names.append(part)
        value = value.get(part)
    return names


def no_such_score(key: str, keys: Sequence[str], run: str = "this run") -> str:
    """In words, that a run has no score of this name, and which it has that look like it."""
    close = difflib.get_close_matches(key, keys, n=3, cutoff=0.3)
    return (
        f"{run} has no score {key!r}; the nearest it has: {', '.join(close) or 'none'} (keys are as the "
        "table of scores shows them)"
    )


# Tokens and passwords are never options, because options are recorded with the run.

_KEY = re.compile(r"(^|[._])(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
_VARIABLE = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|CREDENTIALS?)$", re.IGNORECASE)
_VALUE = re.compile(r"hf_[A-Za-z0-9]{20,}|://[^/\s:@]*:[^/\s@]+@")  # a Hub token; a password in an address
_READS_VARIABLE = re.compile(r"\$\{oc\.env:\s*'?(\w+)")
_MIN_SECRET = 8  # characters: a shorter value may occur in an option by chance
_INSTEAD = (
    "options are recorded with the run and shown. Put a token into the environment variable HF_TOKEN or "
    "WANDB_API_KEY, or log in once with `hf auth login` or `wandb login`"
)


def refuse_arguments(arguments: Sequence[str]) -> None:
    """Refuse secrets on the command line, before anything of it is recorded.

    Raises:
        UserError: for an argument that holds or names a secret (which is not shown), or that is not text.
    """
    for argument in arguments:
        key, _, value = argument.partition("=")
        key = key.lstrip("+~")
        if any("\ud800" <= c <= "\udfff" for c in argument):
            raise UserError(f"{argument!a}: is not UTF-8 text, so it cannot be recorded with the run")
        if key.startswith("hydra.job.env_set"):
            raise UserError(
                f"{key}= is not supported here, because {_INSTEAD}; set other variables in the shell"
            )
        variable = _READS_VARIABLE.search(value)
        if "=" in argument and (_KEY.search(key) or _is_secret(value)):
            raise UserError(f"{key}= is or contains a token or password: {_INSTEAD}")
        if variable and _VARIABLE.search(variable[1]):
            raise UserError(f"{key}= reads the environment variable {variable[1]}: {_INSTEAD}")


def refuse_values(config: dict[str, Any]) -> None:
    """Refuse secrets in a whole configuration, which may contain the user's files.

    Raises:
        UserError: naming the option.
    """
    for key, value in _leaves(config):
        if _is_secret(value):
            raise UserError(f"{key} contains a token or password: {_INSTEAD}")


def _is_secret(value: str) -> bool:
    """Whether a value looks like a secret, or contains that of an environment variable."""
    secrets = (v for name, v in os.environ.items() if _VARIABLE.search(name) and len(v) >= _MIN_SECRET)
    return _VALUE.search(value) is not None or any(secret in value for secret in secrets)


def _leaves(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, f"{key}.{name}".lstrip("."))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _leaves(value, key)
    elif isinstance(node, str):
        yield key, node
