"""Vectors on disk: shards that are written one by one, and mapped into memory one at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from train.errors import UserError
from train.io.files import sync, write_json
from train.io.records import read_json

_MANIFEST = "store.json"
_FORMAT = 1


class VectorStore:
    """(N, D), float32, in files of `shard_size` rows: `00000.npy`, `00001.npy`, …, the last with the rest.

    Iterating gives the shards as tensors, in their order. Only those that are held are mapped into memory.

    Args:
        folder: of the files.
        num_rows: N.
        dimension: D.
        shard_size: rows a file.
        width: of each row only the first so many numbers are read; None = all.
    """

    def __init__(
        self, folder: Path, num_rows: int, dimension: int, shard_size: int, *, width: int | None = None
    ) -> None:
        self.folder = folder
        self.num_rows, self.dimension, self.shard_size, self.width = num_rows, dimension, shard_size, width

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self.shard_size)

    @property
    def is_cut(self) -> bool:
        return self.width is not None

    def cut(self, width: int) -> VectorStore:
        """The same vectors, cut to their first `width` numbers."""
        return VectorStore(self.folder, self.num_rows, self.dimension, self.shard_size, width=width)

    def start(self, facts: Mapping[str, Any], option: str) -> list[int]:
        """Begin the store, or go on with it: the shards that are yet to be written.

        Args:
            facts: name → value of what decides the vectors, kept in `store.json`.
            option: that named the folder, for messages.

        Raises:
            UserError: if the folder holds vectors of other facts or shapes, or cannot be written, or the disk
                is too small.
        """
        shape = {"rows": self.num_rows, "dimension": self.dimension, "shard_size": self.shard_size}
        manifest = {"format": _FORMAT, **facts, **shape}
        path, elsewhere = self.folder / _MANIFEST, f"name another folder with {option}=, or delete this one"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            files = [file for file in self.folder.iterdir() if file.is_file() and file.name[0] != "."]
            if path not in files:
                if files:  # others' vectors, or their index
                    raise UserError(f"{self.folder}: holds files without their {_MANIFEST}: {elsewhere}")
                write_json(path, manifest)
            missing = self.missing()
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        found = read_json(path)
        if found != manifest:
            known = found if isinstance(found, dict) else {}
            differing = [name for name in manifest if known.get(name) != manifest[name]]
            raise UserError(
                f"{self.folder}: holds vectors that are not those of this run: they differ in "
                f"{', '.join(differing) or 'their record'} (see {_MANIFEST}); {elsewhere}"
            )
        needed = sum(self._shape(number)[0] for number in missing) * self.dimension * 4
        if needed > free:
            raise UserError(
                f"{self.folder}: the vectors need {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: "
                f"name a folder on another disk with {option}="
            )
        return missing

    def missing(self) -> list[int]:
        """The shards that are not there, or not whole."""
        return [number for number in range(self.num_shards) if not self._is_there(number)]

    def write(self, number: int, rows: NDArray[np.float32]) -> None:
        """Write a shard, completely or not at all.

        Raises:
            UserError: if it cannot be written.
        """
        assert rows.shape == self._shape(number)
        path = self._path(number)
        partial = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with partial.open("wb") as file:
                np.save(file, rows)
            sync(partial)
            partial.replace(path)
            sync(self.folder)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None

    def __iter__(self) -> Iterator[Tensor]:
        return (self._shard(number)[:, : self.width] for number in range(self.num_shards))

    def rows(self, positions: Tensor) -> Tensor:
        """(…, D), the vectors at some positions, int (…)."""
        found = torch.empty(*positions.shape, self.width or self.dimension)
        shards = positions // self.shard_size
        for number in sorted(set(shards.flatten().tolist())):
            there = shards == number
            found[there] = self._shard(number)[positions[there] - number * self.shard_size, : self.width]
        return found

    def _shard(self, number: int) -> Tensor:
        # "c": torch takes no arrays that cannot be written; nothing that is written would reach the file.
        return torch.from_numpy(np.load(self._path(number), mmap_mode="c"))

    def _is_there(self, number: int) -> bool:
        """Whether a shard was written, and is whole."""
        try:
            shape: tuple[int, ...] = np.load(self._path(number), mmap_mode="r").shape
            return shape == self._shape(number)
        except (OSError, ValueError, EOFError):  # the last for an empty file
            return False

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.npy"

    def _shape(self, number: int) -> tuple[int, int]:
        return min(self.shard_size, self.num_rows - number * self.shard_size), self.dimension
