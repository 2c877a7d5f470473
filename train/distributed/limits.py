"""How much memory a device has, and how much of it is free."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import torch

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


class Memory(NamedTuple):
    """Bytes of one device.

    Attributes:
        total: that it has.
        free: that a process can still take.
    """

    total: int
    free: int


def device_memory(device: str) -> Memory | None:
    """The memory of a device, `cpu`, `cuda` or `mps`, for one process; None where it is not known.

    Main memory is divided by the number of the launch's processes on this machine.
    """
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return Memory(total, free)
    if device == "mps":
        total = torch.mps.recommended_max_memory()
        return Memory(total, max(total - torch.mps.driver_allocated_memory(), 0))
    memory = _main_memory()
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return None if memory is None else Memory(memory.total // count, memory.free // count)


def _main_memory() -> Memory | None:
    """Of the machine, or of the container that this process runs in."""
    try:
        found = dict(re.findall(r"^(\w+): +(\d+) kB", _MEMINFO.read_text(encoding="ascii"), re.MULTILINE))
        memory = Memory(int(found["MemTotal"]) * 1024, int(found["MemAvailable"]) * 1024)
    except (OSError, KeyError):
        return None
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return memory
    in_use = used - int(cached[1]) if cached else used
    return Memory(min(memory.total, limit), max(min(memory.free, limit - in_use), 0))
