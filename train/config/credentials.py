"""Tokens and passwords are never options, because options are recorded with the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from train.errors import UserError

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
        named = _READS_VARIABLE.search(value)
        if "=" in argument and (_KEY.search(key) or _is_secret(value)):
            raise UserError(f"{key}= is or holds a token or password: {_INSTEAD}")
        if named and _VARIABLE.search(named[1]):
            raise UserError(f"{key}= reads the environment variable {named[1]}: {_INSTEAD}")


def refuse_values(config: dict[str, Any]) -> None:
    """Refuse secrets in a whole configuration, which may contain the user's files.

    Raises:
        UserError: naming the option.
    """
    for key, value in _leaves(config):
        if _is_secret(value):
            raise UserError(f"{key} holds a token or password: {_INSTEAD}")


def _is_secret(value: str) -> bool:
    """Whether a value looks like a secret, or contains that of an environment variable."""
    kept = (v for name, v in os.environ.items() if _VARIABLE.search(name) and len(v) >= _MIN_SECRET)
    return _VALUE.search(value) is not None or any(secret in value for secret in kept)


def _leaves(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, f"{key}.{name}".lstrip("."))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _leaves(value, key)
    elif isinstance(node, str):
        yield key, node
