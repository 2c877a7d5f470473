"""What is published names no folder of this machine: of absolute paths the last two parts are left."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath
from typing import Any


def shortened_paths(content: Any) -> Any:
    """JSON or YAML with shortened paths."""
    if isinstance(content, dict):
        return {shortened_paths(key): shortened_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [shortened_paths(value) for value in content]
    return _shortened(content) if isinstance(content, str) else content


def shortened_override(override: str) -> str:
    """An override of Hydra's, its value shortened if it is a path."""
    key, equals, value = override.partition("=")
    plain = value.strip("'\"")
    short = _shortened(plain)
    return override if short == plain else f"{key}{equals}{short}"


def _shortened(text: str) -> str:
    if "\n" in text or not re.match(r"[/~]|[A-Za-z]:[\\/]", text):
        return text
    return "/".join(["…", *PureWindowsPath(text).parts[1:][-2:]])  # takes either kind of slash
