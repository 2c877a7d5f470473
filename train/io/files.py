"""Files that are written completely or not at all, also across power failures."""

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
    """Write a file atomically, under another name that is then renamed, and sync it to the disk.

    A symbolic link with either name is replaced, never followed.

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
    """Write JSON atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, atomically."""
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add the file's name to system errors, which a full disk lacks."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk.

    Some systems cannot do so for folders (Windows, some network file systems); there this does nothing.
    """
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def seal(folder: Path) -> None:
    """Flush all files of a folder, whoever wrote them, and their names to the disk.

    Files get the permissions of new files: some libraries leave theirs unreadable to others.
    """
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            path.chmod(0o666 & ~mask)
            sync(path)
        sync(Path(parent))


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file; file systems that support it (Btrfs, XFS) share the blocks."""
    with Path(source).open("rb") as from_, Path(target).open("xb") as to:
        with contextlib.suppress(AttributeError, OSError):  # not between these file systems
            while os.copy_file_range(from_.fileno(), to.fileno(), _COPY_BYTES):
                pass
        shutil.copyfileobj(from_, to)  # the rest


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprints(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path."""
    return {str(path): fingerprint(path) for path in dict.fromkeys(files)}


def find_links(folder: Path, *, apart: Iterable[str] = ()) -> list[Path]:
    """All symbolic links in a folder and below it.

    Args:
        apart: names of its direct subfolders that are skipped.
    """
    skipped = {folder / name for name in apart}
    paths: list[Path] = []
    for parent, folders, names in os.walk(folder):
        paths += [Path(parent, name) for name in (*folders, *names)]
        folders[:] = [name for name in folders if Path(parent, name) not in skipped]
    return [path for path in paths if path.is_symlink()]
