"""Device, precision and processes: chosen once, with the reason."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import platform
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs

from idiomtune.encoder.sharding import hidden_from_accelerate, sharding_of_launch
from idiomtune.errors import UserError
from idiomtune.io.processes import Processes, has_peers

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
_MIN_GAIN = 1.2  # of bfloat16 on a CPU, for it to be chosen


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

    def autocast(self) -> torch.autocast:
        """The context in which a model computes in this precision."""
        return torch.autocast(self.device, _AUTOCAST.get(self.precision), self.precision != "fp32")

    @property
    def tokens_per_forward(self) -> int:
        """Padded tokens per forward pass that keep this device busy without waste.

        On a CPU short passes are fastest (less padding, and the activations stay in its caches; measured
        with MiniLM, docs/results/speed.md); a GPU needs long ones.
        """
        if self.device == "cpu":
            return 512 if self.precision == "fp32" else 2048
        return 32768


def choose_device(device: str, precision: str, before: str | None = None) -> Placement:
    """Resolve `auto`.

    Args:
        before: the precision of the run that is resumed, which a CPU keeps if it can.

    Raises:
        UserError: if the device is not available, or does not support the requested precision.
    """
    is_there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = [name for name, value in is_there.items() if value]
    reason = ": the fastest available" if device == "auto" else ""
    device = available[0] if device == "auto" else device
    if device not in available:
        message = f"is not available on this machine (available: {', '.join(available)})"
        raise UserError(message, option=f"device={device}")
    bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto" and device == "cpu" and has_bf16_instructions():
        chosen, precision_reason = _precision_of_a_cpu(before)
    elif precision == "auto":
        chosen, precision_reason = (
            ("bf16", "the GPU supports it") if bf16 else ("fp32", "exact, and fast here")
        )
    else:
        if precision == "fp16" and device == "cpu":
            raise UserError("is not for the CPU; use precision=fp32 or bf16", option="precision=fp16")
        if precision == "bf16" and device == "cuda" and not bf16:
            raise UserError("this GPU does not have it; use precision=fp16 or fp32", option="precision=bf16")
        of_user = cast(Precision, precision)
        return Placement(device, of_user, f"device {device}{reason}; precision {precision}")
    return Placement(device, chosen, f"device {device}{reason}; precision {chosen}: {precision_reason}")


def has_bf16_instructions() -> bool:
    """Whether this CPU has instructions for bfloat16 matrix products, by the library that computes them."""
    is_there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _precision_of_a_cpu(before: str | None) -> tuple[Precision, str]:
    """The faster precision on a CPU with instructions for bfloat16."""
    if before is not None:
        return ("fp32" if before == "fp32" else "bf16"), "as at the start of the run"
    if has_peers():  # which must choose alike, and would measure apart
        return "bf16", "this processor has instructions for it"
    times = times_as_fast_in_bf16()
    return ("bf16" if times >= _MIN_GAIN else "fp32"), f"a layer trains {times:.1f} times as fast in bf16"


@cache  # the runs of a sweep choose alike
def times_as_fast_in_bf16() -> float:
    """The speed of a layer's training in bfloat16, relative to float32, on this CPU; takes 0.1 s."""
    # Nothing is drawn: the run's seed is set.
    weights, texts = torch.ones(1536, 384, requires_grad=True), torch.ones(512, 384, requires_grad=True)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # other programs disturb one thread least; likewise in turn, the best of each
    try:
        for _ in range(5):
            for bf16, times in seconds.items():
                start = time.perf_counter()
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    torch.nn.functional.linear(texts, weights).sum().backward()  # type: ignore[no-untyped-call]
                times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(num_threads)
    return min(seconds[False]) / min(seconds[True])


def log_placement(placement: Placement) -> None:
    """Log device, precision and threads, and warn of a precision that slows this processor down."""
    log.info("%s%s", placement.reason, _threads() if placement.device == "cpu" else "")
    if placement.device == "cpu" and placement.precision == "bf16" and not has_bf16_instructions():
        log.warning(
            "precision=bf16: this processor has no bfloat16 instructions and would take several times as "
            "long as in float32: use precision=fp32"
        )


def _threads() -> str:
    """How many threads compute, and how busy the cores were in the last minute, if half of them were."""
    number, num_cores = torch.get_num_threads(), os.cpu_count() or 1
    about = f"; {number} thread{'s' * (number > 1)}"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > num_cores / 2:
        about += f"; {num_cores} cores had a load of {load:.1f} in the last minute"
    return about


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
        message = "is not supported with accelerate's fsdp_config; use bf16 or fp32"
        raise UserError(message, option="precision=fp16")
    if sharding is not None and sharding.offload and placement.device != "cuda":
        raise UserError(
            f"is for GPUs, and this run is on the device {placement.device}: set it to false",
            option="accelerate's fsdp_config: fsdp_offload_params: true",
        )
    # In a sweep one process makes several runs, and accelerate would keep the first run's settings.
    AcceleratorState._reset_state(reset_partial_state=not dist.is_initialized())
    # With offloading, tensors of both devices are reduced.
    is_mixed = sharding is not None and sharding.offload and has_peers()
    backend: dict[str, Any] = {"backend": "cuda:nccl,cpu:gloo"} if is_mixed else {}
    with hidden_from_accelerate():
        accelerator = Accelerator(
            mixed_precision="no" if placement.precision == "fp32" else placement.precision,
            cpu=placement.device == "cpu",
            kwargs_handlers=[InitProcessGroupKwargs(timeout=_TIMEOUT, **backend)],
        )
    if accelerator.distributed_type.value not in _SUPPORTED:
        raise UserError(
            f"this launch asks for {accelerator.distributed_type.value}, which is not supported: every "
            "process must hold the whole model, or its shard under FSDP version 2 (accelerate config: "
            "MULTI_GPU, MULTI_CPU, FSDP or NO)"
        )
    if dist.is_initialized():
        atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    count = accelerator.num_processes
    return accelerator, Processes(accelerator.process_index, count, sharding if count > 1 else None)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system.

    Each forward and backward pass needs about the same amount again, and the system zeroes every page that it
    provides. Does nothing without glibc, or if environment variables already configure its allocator.
    """
    is_configured = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if platform.libc_ver()[0] == "glibc" and not is_configured:
        glibc = ctypes.CDLL(None)
        glibc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        glibc.mallopt(_M_MMAP_MAX, 0)
