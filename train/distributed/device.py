"""Device, precision and processes: decided here, once, with the reason."""

from __future__ import annotations

import atexit
import ctypes
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, InitProcessGroupKwargs

from train.distributed.processes import Processes
from train.distributed.sharding import sharding_of_launch, unseen_by_accelerate
from train.errors import UserError

Precision = Literal["fp32", "bf16", "fp16"]
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Placement:
    """Where and in which arithmetic a model runs. Weights are float32 in every case.

    Attributes:
        device: `cpu`, `cuda` or `mps`.
        precision: of matrix products; `bf16` and `fp16` by autocast.
        reason: why, in words, for the log and `run.json`.
    """

    device: str
    precision: Precision
    reason: str

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        return _AUTOCAST.get(self.precision)

    @property
    def tokens_per_forward(self) -> int:
        """Padded tokens a forward pass that keep this device busy without waste.

        On a CPU short passes of equal length are fastest (less padding, and activations stay in its
        caches; measured with MiniLM, docs/results/speed.md); a GPU wants long ones.
        """
        if self.device == "cpu":
            return 512 if self.precision == "fp32" else 2048
        return 32768


def place(device: str, precision: str) -> Placement:
    """Resolve `auto`.

    Raises:
        UserError: if the device is not there, or cannot compute in the precision asked for.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        device = next(name for name, there in available.items() if there)
        why = f"device {device}: the best here"
    elif not available[device]:
        there = ", ".join(name for name, is_there in available.items() if is_there)
        raise UserError(f"device={device} is not available on this machine (available: {there})")
    else:
        why = f"device {device}: as asked"

    bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        chosen: Precision = "bf16" if bf16 else "fp32"
        why += f"; precision {chosen}: " + (
            "the GPU has it" if bf16 else "exact; whether a lower one is faster depends on the processor"
        )
    elif precision == "fp16" and device == "cpu":
        raise UserError("precision=fp16 is not for the CPU; use precision=fp32 or bf16")
    elif precision == "bf16" and device == "cuda" and not bf16:
        raise UserError("precision=bf16: this GPU does not have it; use precision=fp16 or fp32")
    else:
        assert precision in ("fp32", "bf16", "fp16")
        chosen = precision  # type: ignore[assignment]
        why += f"; precision {precision}: as asked"
    return Placement(device, chosen, why)


_SUPPORTED = ("NO", "MULTI_CPU", "MULTI_GPU")
_PATIENCE = timedelta(hours=2)  # of a process that waits for another, say while that downloads or scores


def start_processes(placement: Placement) -> tuple[Accelerator, Processes]:
    """This process' place among those of the launch, and accelerate's view of device and precision.

    Raises:
        UserError: if the launch asks for a way of distributing that is not supported.
    """
    if placement.device == "cpu":
        keep_freed_memory()
    sharding = sharding_of_launch()
    if sharding is not None and placement.precision == "fp16":
        raise UserError(
            "accelerate's fsdp_config: precision=fp16 is not for sharded weights; use precision=bf16 or fp32"
        )
    # In a sweep one process makes several runs; accelerate keeps the first one's choices for ever.
    AcceleratorState._reset_state(reset_partial_state=not dist.is_initialized())
    with unseen_by_accelerate():
        accelerator = Accelerator(
            mixed_precision="no" if placement.precision == "fp32" else placement.precision,
            cpu=placement.device == "cpu",
            kwargs_handlers=[InitProcessGroupKwargs(timeout=_PATIENCE)],
        )
    if accelerator.distributed_type not in [DistributedType(name) for name in _SUPPORTED]:
        raise UserError(
            f"this launch asks for {accelerator.distributed_type.value}, which is not supported: "
            "every process holds the whole model, or its share by FSDP version 2 (accelerate config: "
            "MULTI_GPU, MULTI_CPU, FSDP or NO)"
        )
    if dist.is_initialized():
        atexit.register(_leave)
    count = accelerator.num_processes
    return accelerator, Processes(accelerator.process_index, count, sharding if count > 1 else None)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Have glibc keep what is freed instead of giving it back to the system.

    Each forward and backward pass needs as much again, and the system clears every page that it hands out.
    Elsewhere than with glibc, and where its environment variables say what is wanted, nothing is changed.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_MMAP_MAX, 0)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
