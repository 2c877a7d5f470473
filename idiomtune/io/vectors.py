"""Vectors on disk: shards that are written one by one, and mapped into memory one at a time."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from idiomtune.errors import UserError
from idiomtune.io.files import read_json, sync, write_json

log = logging.getLogger(__name__)

_MANIFEST = "store.json"
_FORMAT = 1
_SUM_BYTES = 32  # at the end of each file but the manifest, where readers of `.npy` do not look


class VectorStore:
    """(N, D), float32, in files of `shard_size` rows: `00000.npy`, `00001.npy`, …, the last with the rest.

    Iterating gives the shards as tensors, in their order. Only those that are held are mapped into memory.

    Args:
        folder: of the files.
        num_rows: N.
        dimension: D.
        shard_size: rows a file.
        facts: name → value of what decides the vectors, recorded in `store.json`. The sum of each file
            depends on them.

    Attributes:
        width: only this many leading numbers of each row are read; None = all.
    """

    width: int | None = None

    def __init__(
        self,
        folder: Path,
        num_rows: int,
        dimension: int,
        shard_size: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.num_rows, self.dimension, self.shard_size = num_rows, dimension, shard_size
        shape = {"rows": num_rows, "dimension": dimension, "shard_size": shard_size}
        self._manifest = {"format": _FORMAT, **(facts or {}), **shape}

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self.shard_size)

    def cut(self, width: int) -> VectorStore:
        """The same vectors, cut to their first `width` numbers."""
        narrow = copy.copy(self)
        narrow.width = width
        return narrow

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait for other processes that write to the store, and keep them from it until the block ends.

        Where no lock can be written, no vectors can either: such a store is only read.
        """
        lock = FileLock(self.folder / ".lock")
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                log.info("%s: waiting for another process that writes to it", self.folder)
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def start(self, option: str) -> list[int]:
        """Begin or resume the store: the shards that are yet to be written.

        Args:
            option: that named the folder, for messages.

        Raises:
            UserError: if the folder contains vectors of other facts or shapes or cannot be written, or the
                disk is too small.
        """
        manifest, path = self._manifest, self.folder / _MANIFEST
        advice = f"name another folder with {option}=, or delete this one"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                if any(file.is_file() and file.name[0] != "." for file in self.folder.iterdir()):
                    raise UserError(f"contains files without their {_MANIFEST}: {advice}", file=self.folder)
                write_json(path, manifest)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise _not_written(self.folder, error) from None
        recorded = read_json(path)
        if recorded != manifest:
            differing = ", ".join(name for name in manifest if recorded.get(name) != manifest[name])
            message = f"embeddings of another run, which differ in {differing} (see {_MANIFEST}); {advice}"
            raise UserError(message, file=self.folder)
        missing = self.missing()
        needed = sum(self._num_rows(number) for number in missing) * self.dimension * 4
        if needed > free:
            raise UserError(
                f"the vectors need {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: "
                f"name a folder on another disk with {option}=",
                file=self.folder,
            )
        return missing

    def missing(self) -> list[int]:
        """The shards that are not there, or damaged (reported)."""
        return [number for number in range(self.num_shards) if not self.is_whole(self._name(number))]

    def is_whole(self, name: str) -> bool:
        """Whether a file of the store is there, as it was written for these facts; reports a damaged one."""
        path = self.folder / name
        try:
            content: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
            if content[-_SUM_BYTES:].tobytes() == self._sum(name, content[:-_SUM_BYTES]):
                return True
        except FileNotFoundError:
            return False
        except (OSError, ValueError):  # the latter for an empty file
            pass
        log.warning("%s is damaged, or of an earlier version without sums: it is computed again", path)
        return False

    def write(self, number: int, rows: NDArray[np.float32]) -> None:
        """Write a shard, completely or not at all.

        Raises:
            UserError: if it cannot be written.
        """
        assert rows.shape == (self._num_rows(number), self.dimension)
        self.save(self._name(number), lambda path: np.save(path, rows))

    def write_truncated(self, number: int, count: int) -> None:
        """Write how many texts of a shard were truncated, before the shard. Raises UserError as `write`."""
        self.save(f".truncated.{self._name(number)}", lambda path: np.save(path, count))

    @property
    def num_truncated(self) -> int:
        """Of the texts that the vectors are of; shards of an earlier version do not say."""
        files = [self.folder / f".truncated.{self._name(number)}" for number in range(self.num_shards)]
        return sum(int(np.load(file)) for file in files if file.exists())

    def save(self, name: str, write: Callable[[Path], object]) -> None:
        """Have a file of the store written, completely or not at all, and add its sum.

        Args:
            write: gets the path of a partial file, which ends in `name`.

        Raises:
            UserError: if it cannot be written.
        """
        path, partial = self.folder / name, self.folder / f".partial.{name}"
        try:
            write(partial)
            with partial.open("r+b") as file:
                sum_ = self._sum(name, np.memmap(file, np.uint8, "r"))
                file.seek(0, 2)
                file.write(sum_)
            sync(partial)
            partial.replace(path)
            sync(self.folder)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise _not_written(path, error) from None

    def __iter__(self) -> Iterator[Tensor]:
        return (self._shard(number)[:, : self.width] for number in range(self.num_shards))

    def rows(self, positions: Tensor) -> Tensor:
        """(…, D), the vectors at some positions, int (…)."""
        rows = torch.empty(*positions.shape, self.width or self.dimension)
        shards = positions // self.shard_size
        for number in sorted(set(shards.flatten().tolist())):
            of_shard = shards == number
            rows[of_shard] = self._shard(number)[positions[of_shard] - number * self.shard_size, : self.width]
        return rows

    def _shard(self, number: int) -> Tensor:
        # "c": torch takes no arrays that cannot be written; nothing that is written would reach the file.
        return torch.from_numpy(np.load(self.folder / self._name(number), mmap_mode="c"))

    def _sum(self, name: str, content: NDArray[np.uint8]) -> bytes:
        """SHA-256 of a file's content, its name and what decides the vectors."""
        digest = hashlib.sha256(f"{name} {json.dumps(self._manifest, sort_keys=True)}".encode())
        digest.update(content.data)
        return digest.digest()

    def _name(self, number: int) -> str:
        return f"{number:05}.npy"

    def _num_rows(self, number: int) -> int:
        return min(self.shard_size, self.num_rows - number * self.shard_size)


def _not_written(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot be written: {error.strerror or error}", file=path)
