"""Device, precision and processes: chosen here, once, and for a stated reason."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, InitProcessGroupKwargs

from train.distributed.processes import Processes, has_peers
from train.distributed.sharding import Sharding, sharding_of_launch, unseen_by_accelerate
from train.errors import UserError

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Placement:
    """The device and precision a model runs in. Weights are always float32.

    Attributes:
        device: `cpu`, `cuda` or `mps`.
        precision: of matrix products; `bf16` and `fp16` by autocast.
        reason: of the choice, for the log and `run.json`.
    """

    device: str
    precision: Precision
    reason: str

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        return _AUTOCAST.get(self.precision)

    @property
    def tokens_per_forward(self) -> int:
        """Padded tokens per forward pass that keep this device busy without waste.

        On a CPU short passes are fastest (less padding, and the activations stay in its caches; measured
        with MiniLM, docs/results/speed.md); a GPU needs long ones.
        """
        if self.device == "cpu":
            return 512 if self.precision == "fp32" else 2048
        return 32768


def place(device: str, precision: str) -> Placement:
    """Resolve `auto`.

    Raises:
        UserError: if the device is not available, or does not support the requested precision.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        device = next(name for name, is_there in available.items() if is_there)
        why = f"device {device}: the fastest available"
    elif not available[device]:
        names = ", ".join(name for name, is_there in available.items() if is_there)
        raise UserError(f"device={device} is not available on this machine (available: {names})")
    else:
        why = f"device {device}: as requested"

    bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        chosen: Precision = "bf16" if bf16 else "fp32"
        why += f"; precision {chosen}: " + (
            "the GPU supports it" if bf16 else "exact; on some processors bf16 is faster"
        )
    elif precision == "fp16" and device == "cpu":
        raise UserError("precision=fp16 is not for the CPU; use precision=fp32 or bf16")
    elif precision == "bf16" and device == "cuda" and not bf16:
        raise UserError("precision=bf16: this GPU does not have it; use precision=fp16 or fp32")
    else:
        assert precision in ("fp32", "bf16", "fp16")
        chosen = precision  # type: ignore[assignment]
        why += f"; precision {precision}: as requested"
    return Placement(device, chosen, why)


def has_bf16_instructions() -> bool:
    """Whether this CPU has instructions for bfloat16 matrix products, by the library that computes them."""
    is_there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def log_placement(placement: Placement) -> None:
    """Log device and precision, and warn of a precision that slows this processor down."""
    log.info(placement.reason)
    if placement.device == "cpu" and placement.precision == "bf16" and not has_bf16_instructions():
        log.warning(
            "precision=bf16: this processor has no instructions for bfloat16, and needs several times as "
            "long as in float32: use precision=fp32"
        )


_SUPPORTED = ("NO", "MULTI_CPU", "MULTI_GPU")
_TIMEOUT = timedelta(hours=2)  # for waiting processes, while another downloads or scores


def start_processes(placement: Placement) -> tuple[Accelerator, Processes]:
    """Set up accelerate for this device and precision; also returns this process' place in the launch.

    Raises:
        UserError: if the launch asks for a kind of distributed training that is not supported.
    """
    if placement.device == "cpu":
        keep_freed_memory()
    sharding = sharding_of_launch()
    if sharding is not None and placement.precision == "fp16":
        raise UserError(
            "accelerate's fsdp_config: precision=fp16 is not supported with sharded weights; "
            "use precision=bf16 or fp32"
        )
    if sharding is not None and sharding.offload and placement.device != "cuda":
        raise UserError(
            "accelerate's fsdp_config: fsdp_offload_params: true keeps a GPU's shards in main memory, and "
            f"this run computes on the device {placement.device}: set it to false"
        )
    # In a sweep one process makes several runs, and accelerate would keep the first run's settings.
    AcceleratorState._reset_state(reset_partial_state=not dist.is_initialized())
    with unseen_by_accelerate():
        accelerator = Accelerator(
            mixed_precision="no" if placement.precision == "fp32" else placement.precision,
            cpu=placement.device == "cpu",
            kwargs_handlers=[_process_group(sharding)],
        )
    if accelerator.distributed_type not in [DistributedType(name) for name in _SUPPORTED]:
        raise UserError(
            f"this launch asks for {accelerator.distributed_type.value}, which is not supported: every "
            "process must hold the whole model, or its shard under FSDP version 2 (accelerate config: "
            "MULTI_GPU, MULTI_CPU, FSDP or NO)"
        )
    if dist.is_initialized():
        atexit.register(_leave)
    count = accelerator.num_processes
    return accelerator, Processes(accelerator.process_index, count, sharding if count > 1 else None)


def _process_group(sharding: Sharding | None) -> InitProcessGroupKwargs:
    if sharding is not None and sharding.offload and has_peers():  # tensors of both devices are reduced
        return InitProcessGroupKwargs(backend="cuda:nccl,cpu:gloo", timeout=_TIMEOUT)
    return InitProcessGroupKwargs(timeout=_TIMEOUT)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system.

    Each forward and backward pass needs about the same amount again, and the system zeroes every page that it
    provides. Does nothing without glibc, or if environment variables already configure its allocator.
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
