"""A disk whose power can be cut: an ext4 file system in a file, stopped with nothing written back.

Needs root on Linux, and a kernel that lends loop devices.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Self

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of linux/fs.h: _IOR('X', 125, __u32)
_NOTHING_WRITTEN = (2).to_bytes(4, "little")  # neither data nor the journal


class Disk:
    """A file system of its own, mounted at `folder` until it is closed."""

    def __init__(self, place: Path, size_mib: int = 512) -> None:
        self._image = place / "disk.img"
        self.folder = place / "disk"
        self.folder.mkdir(exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(size_mib * 2**20)
        _system("mkfs.ext4", "-q", str(self._image))
        self._mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _system("umount", str(self.folder))
        self._image.unlink()

    def power_on(self) -> None:
        """After a cut: as at the next start of the machine, when the journal is replayed."""
        _system("umount", str(self.folder))
        self._mount()

    def _mount(self) -> None:
        _system("mount", "-o", "loop", str(self._image), str(self.folder))


def cut_power(inside: Path) -> None:
    """Stop the file system that a folder lies on: what is not on the disk yet never will be."""
    descriptor = os.open(inside, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, _NOTHING_WRITTEN)
    finally:
        os.close(descriptor)


def is_possible(place: Path) -> bool:
    """Whether this machine lets the tests make such a disk."""
    try:
        with Disk(place, size_mib=16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _system(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
