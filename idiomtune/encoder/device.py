"""Device, precision and processes: chosen once, with the reason."""

from __future__ import annotations

import atexit
import logging
import platform
from dataclasses import dataclass
from datetime import timedelta
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


@dataclass(frozen=True)
class DeviceAndPrecision:
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


def choose_device(device: str, precision: str, before: str | None = None) -> DeviceAndPrecision:
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
    if precision == "fp16" and device == "cpu":
        raise UserError("is not for the CPU; use precision=fp32 or bf16", option="precision=fp16")
    if precision == "bf16" and device == "cuda" and not bf16:
        raise UserError("this GPU does not have it; use precision=fp16 or fp32", option="precision=bf16")
    chosen, cause = precision, ""
    if precision == "auto" and device == "cpu" and has_bf16_instructions():
        chosen = "fp32" if before == "fp32" else "bf16"
        cause = ": as at the start of the run" if before else ": this processor has instructions for it"
    elif precision == "auto":
        chosen, cause = ("bf16", ": the GPU supports it") if bf16 else ("fp32", ": exact, and fast here")
    reason = f"device {device}{reason}; precision {chosen}{cause}"
    return DeviceAndPrecision(device, cast(Precision, chosen), reason)


def has_bf16_instructions() -> bool:
    """Whether this CPU has instructions for bfloat16 matrix products, which torch uses."""
    cpu, is_there = torch.cpu, torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (is_there and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    # On x86 the library also takes processors that only have AVX-512, where bfloat16 is emulated and slow.
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not is_x86 or cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported()


def log_placement(placement: DeviceAndPrecision) -> None:
    """Log device, precision and threads, and warn of a precision that slows this processor down."""
    threads = f"; threads: {torch.get_num_threads()}" if placement.device == "cpu" else ""
    log.info("%s%s", placement.reason, threads)
    if placement.device == "cpu" and placement.precision == "bf16" and not has_bf16_instructions():
        log.warning("precision=bf16: slow on this processor, which lacks instructions: use precision=fp32")


_SUPPORTED = ("NO", "MULTI_CPU", "MULTI_GPU")
_TIMEOUT = timedelta(hours=2)  # for waiting processes, while another downloads or scores


def start_processes(placement: DeviceAndPrecision) -> tuple[Accelerator, Processes]:
    """Set up accelerate for this device and precision; also returns this process' place in the launch.

    Raises:
        UserError: if the launch asks for a kind of distributed training that is not supported.
    """
    sharding = sharding_of_launch()
    if sharding is not None and placement.precision == "fp16":
        message = "is not supported with accelerate's fsdp_config; use bf16 or fp32"
        raise UserError(message, option="precision=fp16")
    if sharding is not None and sharding.offload and placement.device != "cuda":
        message = f"is for GPUs, and this run is on the device {placement.device}: set it to false"
        raise UserError(message, option="accelerate's fsdp_config: fsdp_offload_params: true")
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
        kind = accelerator.distributed_type.value
        raise UserError(f"this launch asks for {kind}: only MULTI_GPU, MULTI_CPU, FSDP and NO are supported")
    if dist.is_initialized():
        atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    count = accelerator.num_processes
    return accelerator, Processes(accelerator.process_index, count, sharding if count > 1 else None)
