"""How much memory a device has, and how much of it is free."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_BEYOND_MPS = 0.7  # of what Metal recommends: so much more torch takes (PYTORCH_MPS_HIGH_WATERMARK_RATIO=1.7)
# In a container's `memory.stat`: what is freed where memory is short.
_RECLAIMED = ("inactive_file", "active_file", "slab_reclaimable")


class Memory(NamedTuple):
    """Bytes of one device.

    Attributes:
        total: that it has.
        free: that a process can still take.
        swap: that it can take beyond, more slowly.
    """

    total: int
    free: int
    swap: int = 0


def device_memory(device: str) -> Memory | None:
    """The memory of a device, `cpu`, `cuda` or `mps`, for one process; None where it is not known.

    Main memory is divided by the number of the launch's processes on this machine.
    """
    if device != "cpu":
        gc.collect()  # the model of a sweep's earlier run
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        # What torch's allocator keeps of freed tensors is not free for others, but for this process it is.
        return Memory(total, free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    if device == "mps":
        total = torch.mps.recommended_max_memory()
        free = max(total - torch.mps.current_allocated_memory(), 0)
        return Memory(total, free, int(_BEYOND_MPS * total))
    memory = _main_memory()
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return None if memory is None else Memory(*(size // count for size in memory))


def _main_memory() -> Memory | None:
    """Of the machine, or of the container or job that this process runs in."""
    try:
        found = dict(re.findall(r"^(\w+): +(\d+) kB", _MEMINFO.read_text(encoding="ascii"), re.MULTILINE))
        sizes = found["MemTotal"], found["MemAvailable"], found.get("SwapFree", 0)
        memory = Memory(*(int(size) * 1024 for size in sizes))
    except (OSError, KeyError):
        return None
    for limit, free in _limits():
        memory = Memory(min(memory.total, limit), max(min(memory.free, free), 0))
    return memory


def _limits() -> Iterator[tuple[int, int]]:
    """Of each control group (version 2) around this process, what it may take and what of it is free."""
    try:
        found = re.search(r"^0::/(.*)$", _OWN_CGROUP.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        found = None
    inner = _CGROUP / found.group(1) if found else _CGROUP
    for group in (inner, *inner.parents):
        if not group.is_relative_to(_CGROUP):
            return
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            said = dict(re.findall(r"^(\w+) (\d+)", (group / "memory.stat").read_text(), re.MULTILINE))
        except (OSError, ValueError):  # no such group here, or one without a limit ("max")
            continue
        yield limit, limit - used + sum(int(said.get(name, 0)) for name in _RECLAIMED)
