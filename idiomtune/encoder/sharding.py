"""Sharding an encoder's weights over the processes (FSDP2), if accelerate's configuration asks for it.

Each process holds a shard of every weight, of its gradient and of the optimizer's state. A forward pass
gathers the weights of one transformer block after the other; a backward pass leaves each process with its
shard of the summed gradient. So all processes must run each pass at the same time, on different texts.

Accelerate passes its configuration on in environment variables. This module reads them and shards by itself:
accelerate assumes that each process computes the loss of its part of the batch only.

References:
    Zhao et al. 2023 (arXiv 2304.11277); torch's `fully_shard`, which shards parameter by parameter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from idiomtune.errors import UserError

log = logging.getLogger(__name__)

_ON = "ACCELERATE_USE_FSDP"
_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"


@dataclass(frozen=True)
class Sharding:
    """How the weights are sharded.

    Attributes:
        reshard_after_forward: free a block's weights after its forward pass, and gather them again for its
            backward pass.
        blocks: names of the classes whose modules are gathered as units; empty = those that the model names.
        offload: keep shards, their gradients and the optimizer's state in main memory; a pass copies the
            weights of one block after the other to the GPU, and the optimizer runs on the CPU.
    """

    reshard_after_forward: bool = True
    blocks: tuple[str, ...] = ()
    offload: bool = False


def sharding_of_launch() -> Sharding | None:
    """The `fsdp_config` of accelerate's configuration, or None.

    Raises:
        UserError: if it asks for something that is not supported.
    """
    if not _is_true(_ON):
        return None
    checkpointing = "set it to false, and trainer.activation_checkpointing=true, which does the same"
    parallelism = "leave it out (all processes share the weights)"
    policy, wrap = os.environ.get("FSDP_AUTO_WRAP_POLICY", "").upper(), "fsdp_auto_wrap_policy"
    refused = [  # settings that would have no effect here, what to do instead, and whether they are set
        ("fsdp_version: 1", "set fsdp_version: 2", os.environ.get("FSDP_VERSION", "1") != "2"),
        ("fsdp_activation_checkpointing: true", checkpointing, _is_true("FSDP_ACTIVATION_CHECKPOINTING")),
        ("parallelism_config", parallelism, _is_true("ACCELERATE_USE_PARALLELISM_CONFIG")),
        ("fsdp_ignored_modules", "leave it out", os.environ.get("FSDP_IGNORED_MODULES")),
        (f"{wrap}: {policy}", f"set {wrap}: TRANSFORMER_BASED_WRAP", policy == "SIZE_BASED_WRAP"),
    ]
    if problems := [f"{name} is not supported: {instead}" for name, instead, is_set in refused if is_set]:
        raise UserError("; ".join(problems), option="accelerate's fsdp_config")
    names = os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP", "")
    return Sharding(
        reshard_after_forward=os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false",
        blocks=tuple(name.strip() for name in names.split(",") if name.strip()),
        offload=_is_true("FSDP_OFFLOAD_PARAMS"),
    )


@contextmanager
def hidden_from_accelerate() -> Iterator[None]:
    """Within this context accelerate sets up plain processes, whatever the device."""
    before = os.environ.pop(_ON, None)
    if before is not None and _is_true(_LOADING):
        # Otherwise transformers leaves the weights empty in all processes but the first.
        log.info("every process loads the whole model: fsdp_cpu_ram_efficient_loading is not used")
        os.environ[_LOADING] = "false"
    try:
        yield
    finally:
        if before is not None:
            os.environ[_ON] = before


def _is_true(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1", "yes")


def shard(encoder: nn.Module, transformer: nn.Module, sharding: Sharding, num_processes: int) -> None:
    """Shard the weights of an encoder's transformer, which are equal in all processes.

    What follows the transformer (a dense layer, the weights of a pooling) is complete in every process.

    Args:
        transformer: the part of `encoder` to shard.

    Raises:
        UserError: if the model has none of the blocks that `sharding` names.
    """
    device = next(transformer.parameters()).device.type
    mesh = init_device_mesh(device, (num_processes,))
    # Pinned, so that copies overlap with the computation; on a CPU, as in tests, there is nothing to pin for.
    policy = CPUOffloadPolicy(pin_memory=device == "cuda") if sharding.offload else OffloadPolicy()
    reshards = sharding.reshard_after_forward
    for module in (*_blocks(transformer, sharding.blocks), transformer):
        # For the outermost module too: by default torch keeps its weights gathered after a forward pass.
        fully_shard(module, mesh=mesh, reshard_after_forward=reshards, offload_policy=policy)
    # sentence-transformers calls `forward` itself, which bypasses the hooks of `__call__`.
    register_fsdp_forward_method(transformer, "forward")
    for sharded in _sharded_modules(encoder):
        sharded.set_gradient_divide_factor(1.0)  # sums: each process has the gradient of its texts only
        sharded.set_force_sum_reduction_for_comms(True)
    log.info(
        "the weights are sharded: %.4g of %.4g million in this process, in %d blocks",
        sum(local_shard(p).numel() for p in encoder.parameters()) / 1e6,
        sum(p.numel() for p in encoder.parameters()) / 1e6,
        len(_sharded_modules(encoder)) - 1,
    )


def _blocks(transformer: nn.Module, names: tuple[str, ...]) -> list[nn.Module]:
    """The modules that are gathered one after the other, inner ones first."""
    classes = names or tuple(getattr(transformer, "_no_split_modules", None) or ())
    blocks = [m for m in transformer.modules() if type(m).__name__ in classes and m is not transformer]
    if names and not blocks:
        option = f"accelerate's fsdp_config: fsdp_transformer_layer_cls_to_wrap: {','.join(names)}"
        raise UserError(f"{type(transformer).__name__} has no such module; leave it out", option=option)
    if not blocks:
        lists = [m for m in transformer.modules() if isinstance(m, nn.ModuleList)]
        blocks = list(max(lists, key=lambda m: sum(p.numel() for p in m.parameters()), default=[]))
    return blocks[::-1]  # modules() yields outer ones first


def _sharded_modules(module: nn.Module) -> list[FSDPModule]:
    return [m for m in module.modules() if isinstance(m, FSDPModule)]


def is_sharded(module: nn.Module) -> bool:
    """Whether weights are sharded, so that all processes must run passes together."""
    return bool(_sharded_modules(module))


def reshard(module: nn.Module) -> None:
    """Free the weights that forward passes without a backward pass have left gathered."""
    for sharded in _sharded_modules(module):
        sharded.reshard()


def compute_device(module: nn.Module) -> torch.device:
    """Where the module's passes run; shards of its weights may be in main memory."""
    weight = next(module.parameters())
    if isinstance(weight, DTensor) and weight.device_mesh.device_type != weight.device.type:
        kind = weight.device_mesh.device_type
        return torch.device(kind, torch.get_device_module(kind).current_device())
    return weight.device


def local_shard(tensor: Tensor) -> Tensor:
    """This process' shard of a sharded tensor, or a plain tensor unchanged; it shares the tensor's memory."""
    local: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach()


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of all processes, full or sharded, in the sharding of `like` (if that is sharded)."""
    if not isinstance(like, DTensor):
        return tensor
    if isinstance(tensor, DTensor):
        return tensor.redistribute(placements=like.placements)
    shared = distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return shared.to(like.device)  # of shards in main memory: the mesh puts it onto the GPU


@contextmanager
def full_state(module: nn.Module, optimizer: torch.optim.Optimizer, *, is_main: bool) -> Iterator[None]:
    """Within this context the main process holds the module's full weights and optimizer state, for saving.

    They are plain tensors in main memory.

    All processes must enter it at the same time: each contributes its shards.
    """
    reshard(module)
    # Each sharded weight with the module that owns it and its name there; tied weights at every place.
    locations = [
        (owner, name, weight)
        for owner in module.modules()
        for name, weight in owner.named_parameters(recurse=False, remove_duplicate=False)
        if isinstance(weight, DTensor)
    ]
    gathered = {  # a tied weight once
        weight: nn.Parameter(_gather_tensor(weight, is_main), requires_grad=weight.requires_grad)
        for weight in dict.fromkeys(weight for *_, weight in locations)
    }
    # In the order of the optimizer's groups, which is the same in all processes.
    parameters = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, DTensor)]
    sharded_state: dict[Tensor, Any] = {p: optimizer.state[p] for p in parameters if p in optimizer.state}
    gathered_state: dict[Tensor, Any] = {
        p: {name: _gather_tensor(value, is_main) for name, value in state.items()}
        for p, state in sharded_state.items()
    }
    try:
        if is_main:
            for owner, name, weight in locations:
                owner._parameters[name] = gathered[weight]
            optimizer.state.update(gathered_state)
        yield
    finally:
        if is_main:
            for owner, name, weight in locations:
                owner._parameters[name] = weight
            optimizer.state.update(sharded_state)


def _gather_tensor(tensor: Tensor, is_main: bool) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    full: Tensor = tensor.full_tensor().detach()
    return full.cpu() if is_main else full.new_zeros(0)
