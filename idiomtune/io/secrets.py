"""Secrets: options named for one are refused, and values of such variables are written nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.errors import UserError
from idiomtune.io.files import flat

OPTION = re.compile(r"(^|[._])(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
"""Names of options that are for a secret."""

# KEY and PAT as words: not in MONKEY, PATH and TOKENIZERS.
_NAME = r"SECRET|TOKEN(?!IZ)|PASSW|CREDENTIAL|(?<![A-Z])(API)?KEYS?(?![A-Z])|(?<![A-Z])PAT(?![A-Z])"
NAMED: set[str] = set()
"""Variables that an option names as a key, secret whatever their names."""
_MIN_LENGTH = 8  # characters: a shorter value may occur in an option by chance


def variables() -> dict[str, str]:
    """The environment's variables that are secret, by name or as a key, with their values; a path is none."""
    return {
        name: value.strip()
        for name, value in os.environ.items()
        if name in NAMED or re.search(_NAME, name, re.IGNORECASE)
        if len(value.strip()) >= _MIN_LENGTH and not (os.sep in value and os.path.lexists(value))
    }


def hide_secrets(text: str) -> str:
    """A text with the values of secret variables, and an address's user and password, starred out."""
    for value in sorted(variables().values(), key=len, reverse=True):
        text = text.replace(value, "***")
    return re.sub(r"(://)[^\s/@]+@", r"\1***@", text)


def refuse_arguments(arguments: Sequence[str]) -> None:
    """As :func:`refuse_values`, of `option=value` on the command line."""
    for option, _, value in (argument.partition("=") for argument in arguments):
        refuse_values({option.lstrip("+~"): value})


def refuse_values(config: Mapping[Any, Any]) -> None:
    """Refuse options that are named for a secret, or hold the value of a secret variable.

    Raises:
        UserError: naming the option.
    """
    values = variables()
    for option, value in flat(config).items():
        held = [name for name, v in values.items() if v in f"{option}={value}"]
        if held or (value not in (None, "") and OPTION.search(option)):
            secret = ", ".join(held) or "its name"
            raise UserError(
                f"{hide_secrets(option)} is or contains a token or password ({secret}): options are recorded "
                "with the run and shown. Put a token into the variable HF_TOKEN or WANDB_API_KEY, "
                "or log in once with `hf auth login` or `wandb login`"
            )


def refuse_files(folder: Path, files: Mapping[str, Path | bytes]) -> None:
    """Refuse to publish files that hold the value of a secret variable; weights are not searched.

    Args:
        folder: of the files, for messages.
        files: name → the file, or its content.

    Raises:
        UserError: naming file and variable.
    """
    for name, file in files.items():
        content = (
            file if isinstance(file, bytes) else b"" if name.endswith(".safetensors") else file.read_bytes()
        )
        for variable, value in variables().items():
            if value.encode() in name.encode() + b"\n" + content:
                problem = f"contains the value of the environment variable {variable}: remove it there"
                raise UserError(problem, file=hide_secrets(str(folder / name)))
