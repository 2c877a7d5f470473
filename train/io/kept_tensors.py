"""Tensors that are computed once and kept in a cache folder, each file under a sum of all that decides it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from train.io.cache import put

log = logging.getLogger(__name__)

_SUM = "sha256"


def read_kept(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a file, by name; None where there is none, or it cannot be read, which is said."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
            is_whole = (file.metadata() or {}).get(_SUM) == _sum_of(tensors)
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError) as error:
        log.warning("%s cannot be read, so it is computed again: %s", path, error)
        return None
    if not is_whole:
        log.warning("%s is damaged, so it is computed again", path)
        return None
    with suppress(OSError):  # of another user, say
        path.touch()
    return tensors


def keep(path: Path, tensors: Mapping[str, Tensor], max_bytes: int) -> None:
    """Write the tensors, unless the folder cannot be written, which is said; several programs may at once.

    Args:
        tensors: on the CPU.
        max_bytes: of all files of the folder. Beyond it those that were not used for longest are deleted.
    """
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        put(path, lambda partial: save_file(whole, partial, metadata={_SUM: _sum_of(whole)}), max_bytes)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        log.warning("nothing can be kept in %s: %s", path.parent, error)


def _sum_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)  # no copy: it may be gigabytes
    return digest.hexdigest()
