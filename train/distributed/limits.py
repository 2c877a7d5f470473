"""How much memory a device has, and how much of it is free."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
# In a container's `memory.stat`: what is freed where memory is short.
_RECLAIMED = ("inactive_file", "active_file", "slab_reclaimable")


class Memory(NamedTuple):
    """Bytes of one device.

    Attributes:
        total: all.
        free: a process can still take these.
        swap: it can take these in addition, more slowly.
    """

    total: int
    free: int
    swap: int = 0


def device_memory(device: str) -> Memory:
    """The memory of a device, `cpu`, `cuda` or `mps`, for one process.

    Main memory is that of the container or job, divided by the number of the launch's processes here.
    """
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return Memory(total, free)
    if device == "mps":
        total = torch.mps.recommended_max_memory()
        return Memory(total, max(total - torch.mps.driver_allocated_memory(), 0))
    main = psutil.virtual_memory()
    memory = Memory(main.total, main.available, psutil.swap_memory().free)
    for group in _groups():
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            stat = dict(re.findall(r"^(\w+) (\d+)", (group / "memory.stat").read_text(), re.MULTILINE))
        except (OSError, ValueError):  # no such group here, or one without a limit ("max")
            continue
        free = limit - used + sum(int(stat.get(name, 0)) for name in _RECLAIMED)
        memory = Memory(min(memory.total, limit), max(min(memory.free, free), 0))
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return Memory(*(size // count for size in memory))


def _groups() -> list[Path]:
    """The control groups (version 2) around this process, from the inside."""
    try:
        own = re.search(r"^0::/(.*)$", _OWN_CGROUP.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        own = None
    inner = _CGROUP / own.group(1) if own else _CGROUP
    return [group for group in (inner, *inner.parents) if group.is_relative_to(_CGROUP)]
