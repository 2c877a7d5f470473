"""The user's cache (`IDIOM_CACHE`): files that are computed or downloaded once, complete or not at all.

Several programs may ask for the same at once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from idiomtune.errors import UserError
from idiomtune.io.files import cache_folder, seal, sync

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

_SUM = "sha256"


def cached_file(kind: str, key: object, make: Callable[[Path], object], *, suffix: str = "") -> Path:
    """The file or folder of a key, which is made if it is missing.

    Args:
        kind: the folder in the cache, such as `gates`.
        key: all that decides the content, as JSON has it.
        make: writes the file, or fills the folder, at the given path.
        suffix: of the file's name.

    Raises:
        UserError: if it cannot be written.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    path = cache_folder() / kind / f"{digest[:16]}{suffix}"
    try:
        if not path.exists():
            store_file(path, make)
    except OSError as error:
        message = f"nothing can be kept in {path.parent}: {error}. IDIOM_CACHE=<folder> names another place"
        raise UserError(message) from error
    return path


def store_file(path: Path, make: Callable[[Path], object], max_bytes: int | None = None) -> None:
    """Make a file or folder of the cache, completely or not at all.

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
    with suppress(OSError):  # another program may delete the same files
        files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        size = sum(file.stat().st_size for file in files)
        for file in files:
            if max_bytes is not None and size > max_bytes and file != path:
                size -= file.stat().st_size
                file.unlink()


def read_tensors(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a file, by name; None if it is missing, or cannot be read, which is logged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
            if (file.metadata() or {}).get(_SUM) != _sum_of(tensors):
                raise OSError("it is damaged")
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError) as error:
        log.warning("%s cannot be read, so it is computed again: %s", path, error)
        return None
    with suppress(OSError):  # of another user, say
        path.touch()
    return tensors


def put_tensors(path: Path, tensors: Mapping[str, Tensor], max_bytes: int) -> None:
    """Write tensors (on the CPU) as :func:`store_file` does. A folder that cannot be written is logged."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    content = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        store_file(path, lambda partial: save_file(content, partial, {_SUM: _sum_of(content)}), max_bytes)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        log.warning("nothing can be cached in %s: %s", path.parent, error)


def _sum_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)  # no copy: it may be gigabytes
    return digest.hexdigest()
