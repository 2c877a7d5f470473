"""An encoder whose weights are shared out over the processes (FSDP2), as accelerate's configuration asks for.

Each process holds a share of every weight, of its gradient and of the optimizer's state. A pass brings the
weights of one transformer block after the other together; a backward pass gives each process the sum of its
share of the gradient. So every pass is made by all processes at once, each with other texts.

Accelerate's configuration comes as environment variables. They are read here, and the work is done here:
what accelerate itself would wrap is a model whose loss each process computes for its own part of a batch.

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
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from train.errors import UserError

log = logging.getLogger(__name__)

_ON = "ACCELERATE_USE_FSDP"
_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"
_REFUSED = {  # what would have no effect here → what to do instead
    "FSDP_OFFLOAD_PARAMS": "fsdp_offload_params: true is not supported; set it to false",
    "FSDP_ACTIVATION_CHECKPOINTING": (
        "fsdp_activation_checkpointing: true is not supported; set it to false, and "
        "trainer.activation_checkpointing=true, which does the same"
    ),
    "ACCELERATE_USE_PARALLELISM_CONFIG": (
        "a parallelism_config is not supported; leave it out (all processes share the weights)"
    ),
}


@dataclass(frozen=True)
class Sharding:
    """How the launch wants weights to be shared out.

    Attributes:
        reshard_after_forward: a block's weights are given back after its forward pass, and brought together
            again for its backward pass.
        blocks: names of the classes whose modules are brought together as one; empty: the model's own.
    """

    reshard_after_forward: bool = True
    blocks: tuple[str, ...] = ()


def sharding_of_launch() -> Sharding | None:
    """What `fsdp_config` of accelerate's configuration says, or None where there is none.

    Raises:
        UserError: if it says what is not supported.
    """
    if not _is_true(_ON):
        return None
    where = "accelerate's fsdp_config"
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError(f"{where}: FSDP version 1 is not supported; set fsdp_version: 2")
    for name, instead in _REFUSED.items():
        if _is_true(name):
            raise UserError(f"{where}: {instead}")
    if os.environ.get("FSDP_IGNORED_MODULES"):
        raise UserError(f"{where}: fsdp_ignored_modules is not supported; leave it out")
    if os.environ.get("FSDP_AUTO_WRAP_POLICY", "").upper() == "SIZE_BASED_WRAP":
        raise UserError(
            f"{where}: weights are brought together by transformer block, not by size: "
            "set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
        )
    names = os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP", "")
    return Sharding(
        reshard_after_forward=os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false",
        blocks=tuple(name.strip() for name in names.split(",") if name.strip()),
    )


@contextmanager
def unseen_by_accelerate() -> Iterator[None]:
    """In here accelerate sets up plain processes, on every kind of device alike."""
    before = os.environ.pop(_ON, None)
    if before is not None and _is_true(_LOADING):
        # transformers would give all processes but the first empty weights, to be filled by accelerate.
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
    """Share out the weights of an encoder's transformer, which are equal in all processes.

    What follows the transformer (a dense layer, weights of a pooling) stays whole in every process.

    Args:
        transformer: the part of `encoder` that is shared out.

    Raises:
        UserError: if the model has no such blocks as `sharding` names.
    """
    mesh = init_device_mesh(next(transformer.parameters()).device.type, (num_processes,))
    for module in (*_blocks(transformer, sharding.blocks), transformer):
        # Said of the outermost too, whose weights torch would keep together after a forward pass.
        fully_shard(module, mesh=mesh, reshard_after_forward=sharding.reshard_after_forward)
    # sentence-transformers calls it by that name, past the hooks of a module that is called.
    register_fsdp_forward_method(transformer, "forward")
    for sharded in _sharded_modules(encoder):
        sharded.set_gradient_divide_factor(1.0)  # sums: a process' gradient is that of its own texts
        sharded.set_force_sum_reduction_for_comms(True)
    log.info(
        "the weights are shared out: %.4g of %.4g million in this process, in %d blocks",
        sum(local(p).numel() for p in encoder.parameters()) / 1e6,
        sum(p.numel() for p in encoder.parameters()) / 1e6,
        len(_sharded_modules(encoder)) - 1,
    )


def _blocks(transformer: Any, names: tuple[str, ...]) -> list[nn.Module]:
    """The modules that are brought together one after the other: inner ones first."""
    wanted = names or tuple(getattr(transformer, "_no_split_modules", None) or ())
    found = [m for m in transformer.modules() if type(m).__name__ in wanted and m is not transformer]
    if names and not found:
        raise UserError(
            f"accelerate's fsdp_config: fsdp_transformer_layer_cls_to_wrap: {','.join(names)}: "
            f"{type(transformer).__name__} has no module of that class; leave it out"
        )
    if not found:
        lists = [m for m in transformer.modules() if isinstance(m, nn.ModuleList)]
        found = list(max(lists, key=lambda m: sum(p.numel() for p in m.parameters()), default=[]))
    return found[::-1]  # modules() names the outer ones first


def _sharded_modules(module: nn.Module) -> list[FSDPModule]:
    return [m for m in module.modules() if isinstance(m, FSDPModule)]


def is_sharded(module: nn.Module) -> bool:
    """Whether passes of it are to be made by all processes at once."""
    return any(isinstance(m, FSDPModule) for m in module.modules())


def reshard(module: nn.Module) -> None:
    """Give back what passes without a backward pass have left together."""
    for one in _sharded_modules(module):
        one.reshard()


def local(tensor: Tensor) -> Tensor:
    """This process' share of a sharded tensor, or a plain tensor as it is; of the same memory."""
    if isinstance(tensor, DTensor):
        mine: Tensor = tensor.to_local()
        return mine.detach()
    return tensor.detach()


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor that all processes have, whole or shared out, shared out as `like` is, if it is."""
    if not isinstance(like, DTensor):
        return tensor
    if isinstance(tensor, DTensor):
        return tensor.redistribute(placements=like.placements)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@contextmanager
def whole(module: nn.Module, optimizer: torch.optim.Optimizer, *, is_main: bool) -> Iterator[None]:
    """In here nothing is sharded in the main process: all weights, and the optimizer's states of them, are
    plain tensors in its main memory, to be saved.

    To be entered by all processes at once, which give their shares.
    """
    reshard(module)
    places: list[tuple[nn.Module, str, nn.Parameter]] = []
    together: dict[nn.Parameter, nn.Parameter] = {}  # of a shared weight once
    for owner in module.modules():
        for name, weight in owner.named_parameters(recurse=False, remove_duplicate=False):
            if _is_shared_out(weight):
                places.append((owner, name, weight))
                if weight not in together:
                    together[weight] = nn.Parameter(
                        _gathered(weight, is_main), requires_grad=weight.requires_grad
                    )
    states: dict[Tensor, dict[str, Any]] = {}
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        if _is_shared_out(p) and p in optimizer.state:
            states[p] = {name: _gathered(value, is_main) for name, value in optimizer.state[p].items()}
    before = {p: optimizer.state[p] for p in states}
    try:
        if is_main:
            for owner, name, p in places:
                owner._parameters[name] = together[p]
            optimizer.state.update(states)
        yield
    finally:
        if is_main:
            for owner, name, p in places:
                owner._parameters[name] = p
            optimizer.state.update(before)


def _is_shared_out(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


def _gathered(tensor: Tensor, is_main: bool) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    full: Tensor = tensor.full_tensor().detach()
    return full.cpu() if is_main else full.new_zeros(0)
