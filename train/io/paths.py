"""Files and folders as people name them."""

from pathlib import Path, PureWindowsPath

from train.errors import UserError


def expanded(named: str, by: str) -> Path:
    """The path with `~` as the home folder.

    Args:
        by: what it was named by, for the message: an option, an environment variable.

    Raises:
        UserError: if `~somebody` is nobody here.
    """
    try:
        return Path(named).expanduser()
    except RuntimeError:
        raise UserError(f"{by}={named}: there is no home folder for {Path(named).parts[0]}") from None


def is_folder(path: Path) -> bool:
    """Whether it is one; a name that is too long, or one that may not be looked at, is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether it is one, as :func:`is_folder`."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_plain_name(name: str) -> bool:
    """Whether a text of a data file can only name something in the folder that it is looked for in.

    No path, on whatever system: `../x`, `/x`, `C:x`, `..`, `.`, an empty text, one with a NUL.
    """
    return name not in ("", ".", "..") and "\0" not in name and PureWindowsPath(name).name == name


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path within a folder ends outside of it, by a link on the way."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return True
