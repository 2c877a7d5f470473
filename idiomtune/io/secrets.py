"""Secrets: refused or starred out wherever something is recorded, shown or published."""

from __future__ import annotations

import html
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.errors import UserError

OPTION = re.compile(r"(^|[._])(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
"""Names of options that are for a secret."""

# Anywhere in a name; KEY and PAT as words, or after what one is for: not in MONKEY, PATH and TOKENIZERS.
_VARIABLE = re.compile(
    r"SECRET|TOKEN(?!IZ)|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|((?<![A-Z])|API|ACCESS|SSH|PRIVATE|SIGNING)KEYS?(?![A-Z])|((?<![A-Z])|HUB|LAB)PATS?(?![A-Z])",
    re.IGNORECASE,
)
_READS_VARIABLE = re.compile(r"oc\.env\s*:[\s\\'\"]*(\w+)")
# A user's part ends at the last @, and may hold slashes behind its colon; `host:8080/a@b` has none.
_USER = re.compile(
    r"(://)(?:[^\s/?#'\"<>]*@|[^\s/?#@:\['\"<>]+:(?!\d{1,5}(?:[/?#]|$))[^\s@'\"<>]*@(?:[^\s/?#'\"<>@]*@)*)"
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{20,}|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|sk-([a-z]+-)*\w{20,}|A[KS]IA[0-9A-Z]{16})"
)
_WANDB_KEY = re.compile("[0-9a-f]{40}")  # as a commit is, so only where the option is for a key
NAMED: set[str] = set()
"""Variables that an option names as a key, secret whatever their names."""
_MIN_LENGTH = 8  # characters: a shorter value may occur in an option by chance
_FORMS = (str, html.escape, lambda text: json.dumps(text)[1:-1])
_BLOCK = 2**24  # bytes
_INSTEAD = (
    "options are recorded with the run and shown. Put a token into the environment variable HF_TOKEN or "
    "WANDB_API_KEY, or log in once with `hf auth login` or `wandb login`"
)


def variables() -> dict[str, str]:
    """The environment's variables that are secret, by name or as a key, with their values; a path is none."""
    return {
        name: value.strip()
        for name, value in os.environ.items()
        if (name in NAMED or _VARIABLE.search(name)) and len(value.strip()) >= _MIN_LENGTH
        if os.sep not in value or not os.path.lexists(value)
    }


def secret_in(text: str) -> str | None:
    """A description of the secret in a text, or None."""
    for name in filter(_VARIABLE.search, _READS_VARIABLE.findall(text)):
        return f"the environment variable {name}"
    for name, value in variables().items():
        if value in text or value in text.replace("\\", ""):  # in quotation marks some signs are escaped
            return f"the value of the environment variable {name}"
    if _USER.search(text):
        return "an address with a user or password"
    return "a token" if _TOKEN.search(text) else None


def hide_secrets(text: str) -> str:
    """A text with its secrets starred out."""
    for value in sorted(variables().values(), key=len, reverse=True):
        text = text.replace(value, "***")
    return _TOKEN.sub("***", _USER.sub(r"\1***@", text))


def refuse_arguments(arguments: Sequence[str]) -> None:
    """Refuse secrets on the command line, before anything of it is recorded.

    Raises:
        UserError: for an argument that holds or names a secret, which is not shown.
    """
    for argument in arguments:
        key, equals, value = argument.partition("=")
        key = key.lstrip("+~")
        if key.startswith("hydra.job.env_set"):
            problem = f"{key}= is not supported here, because {_INSTEAD}"
            raise UserError(f"{problem}; set other variables in the shell")
        _refuse(f"{key}=", "a token" if equals and OPTION.search(key) else secret_in(value))
        _refuse("an argument", secret_in(argument))


def refuse_values(config: Any) -> None:
    """Refuse secrets in a configuration, which may contain the user's files.

    Raises:
        UserError: naming the option.
    """
    leaves = list(_leaves(config))
    has_any = secret_in("\n".join(text for _, text in leaves))  # quicker than one by one
    for option, text in leaves:
        is_key = OPTION.search(option) and _WANDB_KEY.fullmatch(text)
        _refuse(option, "a token" if is_key else has_any and secret_in(text))


def _refuse(option: str, secret: str | None) -> None:
    if secret:
        raise UserError(f"{hide_secrets(option)} is or contains a token or password ({secret}): {_INSTEAD}")


def _leaves(node: Any, option: str = "") -> Iterator[tuple[str, str]]:
    """Option → its value, and the names in it, as texts."""
    if isinstance(node, list | tuple):
        for value in node:
            yield from _leaves(value, option)
    elif isinstance(node, Mapping):
        for name, value in node.items():
            yield option, str(name)
            yield from _leaves(value, f"{option}.{name}".lstrip("."))
    else:
        yield option, str(node)


def refuse_files(folder: Path, files: Mapping[str, Path | bytes]) -> None:
    """Refuse files that hold, or whose names hold, a secret variable's value, also as JSON or HTML have it.

    Args:
        folder: of the files, for messages.
        files: name → the file, or its content.

    Raises:
        UserError: naming file and variable; if a file cannot be read.
    """
    forms = {os.fsencode(form(v)): name for name, v in variables().items() for form in _FORMS}
    overlap = max(map(len, forms), default=0)
    for name, content in files.items() if forms else ():
        try:
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                block, more = b"", os.fsencode(name) + b"\n"
                while more:
                    block, more = block[-overlap:] + more, file.read(_BLOCK)
                    if held := next((forms[form] for form in forms if form in block), None):
                        problem = f"contains the value of the environment variable {held}: remove it there"
                        raise UserError(problem, file=hide_secrets(str(folder / name)))
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
