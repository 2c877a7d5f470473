"""Files that are on disk whole or not at all, also after a power failure."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_COPY_BYTES = 2**26


def write_text(path: Path, text: str) -> None:
    """Write a file whole: under another name first, which is then renamed; both are on disk afterwards.

    A symbolic link of either name is replaced, never followed.

    Raises:
        OSError: naming the file.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with named_in_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            with partial.open("x", encoding="utf-8", newline="") as file:  # line ends as they are
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, whole."""
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """The system reports a full disk without the file that was being written."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Have the system put a file's content, or a folder's list of names, on the disk.

    Not every system and file system can for a folder (Windows, some network ones): there it is as safe as
    they make it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # Windows does not open folders
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def seal(folder: Path) -> None:
    """Put all files of a folder, which others may have written, and their names on the disk.

    Files get the permissions that new files have here: some libraries leave theirs unreadable to others.
    """
    mode = 0o666 & ~_umask()
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            path.chmod(mode)
            sync(path)
        sync(Path(parent))


def _umask() -> int:
    """The system tells it only in exchange for another."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def copy_file(source: str | Path, target: str | Path) -> None:
    """A file of its own with the same content; file systems that can (Btrfs, XFS) share the blocks."""
    with Path(source).open("rb") as from_, Path(target).open("xb") as to:
        try:
            while os.copy_file_range(from_.fileno(), to.fileno(), _COPY_BYTES):
                pass
        except (AttributeError, OSError):  # not on this system, or not between these file systems
            to.seek(0)
            to.truncate()
            from_.seek(0)
            shutil.copyfileobj(from_, to)


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprints(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path."""
    return {str(path): fingerprint(path) for path in dict.fromkeys(files)}


def copy_aside(path: Path) -> Path:
    """Copy a damaged file to `<name>.damaged`, or `.damaged-2`, … where there is one already.

    A copy: what can still be read of the file is there until it is made again.
    """
    number, aside = 1, path.with_name(f"{path.name}.damaged")
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    copy_file(path, aside)
    sync(aside)
    return aside


def find_links(folder: Path, *, apart: Iterable[str] = ()) -> list[Path]:
    """Symbolic links in a folder and below it.

    Args:
        apart: names of folders right in it that are not looked at.
    """
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        found += [path for name in (*folders, *names) if (path := Path(parent, name)).is_symlink()]
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name not in apart]
    return found
