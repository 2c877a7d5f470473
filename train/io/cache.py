"""The user's cache (`IDIOM_CACHE`): what is computed once, each under the digest of all that decides it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from train.io.files import seal, sync
from train.io.paths import cache_folder


def get(kind: str, key: object, make: Callable[[Path], object], *, suffix: str = "") -> Path:
    """The file or folder of a key, which is made if it is missing. Several programs may ask at once.

    Args:
        kind: the folder in the cache, such as `negatives`.
        key: all that decides the content, as JSON has it.
        make: writes the file, or fills the folder, at the given path.
        suffix: of the file's name.

    Raises:
        OSError: if it cannot be written.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    path = cache_folder() / kind / f"{digest[:16]}{suffix}"
    if not path.exists():
        put(path, make)
    return path


def put(path: Path, make: Callable[[Path], object], max_bytes: int | None = None) -> None:
    """Have a file or folder of the cache made, completely or not at all.

    Args:
        max_bytes: of all files of the folder. Beyond it those that were not used for longest are deleted.

    Raises:
        OSError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make(partial)
        if partial.is_dir():
            seal(partial)
            with suppress(OSError):  # another program has made it meanwhile
                partial.rename(path)
        else:
            sync(partial)
            partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    if max_bytes is not None:
        with suppress(OSError):  # another program may delete the same files
            _delete_unused(path, max_bytes)


def _delete_unused(newest: Path, max_bytes: int) -> None:
    files = sorted(newest.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    size = sum(path.stat().st_size for path in files)
    for path in files:
        if size > max_bytes and path != newest:
            size -= path.stat().st_size
            path.unlink()
