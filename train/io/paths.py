"""Paths that users give."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from train.errors import UserError


def expanded(path: str, option: str) -> Path:
    """The path with `~` as the home folder.

    Args:
        option: or environment variable, that named it, for the message.

    Raises:
        UserError: if there is no user `~somebody`.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(
            f"there is no home folder for {Path(path).parts[0]}", option=option, file=path
        ) from None


def cache_folder() -> Path:
    """Where downloads are stored: `$IDIOM_CACHE`, else `idiomtune` in the user's cache."""
    if folder := os.environ.get("IDIOM_CACHE"):
        return expanded(folder, "IDIOM_CACHE")
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "XDG_CACHE_HOME") / "idiomtune"


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; False if its name is too long, or access is denied."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether a path is a file, see :func:`is_folder`."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_plain_name(name: str) -> bool:
    """Whether a name from a data file can only refer to something in the folder where it is looked up.

    It must not be a path on any system: `../x`, `/x`, `C:x`, `..`, `.`, an empty text, one with a NUL.
    """
    return name not in ("", ".", "..") and "\0" not in name and PureWindowsPath(name).name == name


def leads_out(path: Path, folder: Path) -> bool:
    """Whether links lead a path within a folder out of it."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return True


def numbered(path: Path) -> Iterator[Path]:
    """The path, then `<path>-2`, `<path>-3`, …"""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")
