"""AdamW, its learning rates over the steps, and its state as tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from idiomtune.config import TrainerSettings
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.sharding import shard_like
from idiomtune.encoder.trained_parts import IdiomTokenRows
from idiomtune.objectives import WithPretrainedPart


def build_optimizer(encoder: Encoder, modules: nn.Module, trainer: TrainerSettings) -> torch.optim.AdamW:
    """AdamW for the encoder and an objective's modules.

    Raises:
        UserError: if an option needs idiom tokens, which the encoder does not have.
    """
    if trainer.only_idiom_tokens:
        IdiomTokenRows(encoder, "trainer.only_idiom_tokens=true").train_rows_only()
    optimizer = torch.optim.AdamW(
        parameter_groups(encoder, modules, trainer),
        weight_decay=trainer.weight_decay,
        # One pass over the weights instead of nine; PyTorch chooses it by itself only on a GPU.
        fused=True if any(p.device.type == "cpu" for p in encoder.parameters()) else None,
    )
    if (rate := trainer.idiom_tokens_learning_rate) is not None:
        rows = IdiomTokenRows(encoder, f"trainer.idiom_tokens_learning_rate={rate}")
        rows.scale_steps(optimizer, rate / trainer.learning_rate)
    return optimizer


def parameter_groups(
    encoder: nn.Module, modules: nn.Module, trainer: TrainerSettings
) -> list[dict[str, Any]]:
    """The trained parameters, grouped by learning rate.

    New parameters of an objective's modules have the modules' rate, their pretrained ones the encoder's.
    What `trainer.no_decay` names is in groups of its own.
    """
    modules_rate = trainer.head_learning_rate or trainer.learning_rate
    parts = [module.pretrained for module in modules.modules() if isinstance(module, WithPretrainedPart)]
    pretrained = [p for module in (encoder, *parts) for p in module.parameters()]
    ids = {id(p) for p in pretrained}
    new = [p for p in modules.parameters() if id(p) not in ids]
    undecayed = {id(p) for root in (encoder, modules) for p in _names_without_decay(root, trainer.no_decay)}
    groups: list[dict[str, Any]] = []
    for parameters, rate in ((pretrained, trainer.learning_rate), (new, modules_rate)):
        rates = {"lr": rate, "initial_lr": rate}  # the peak, which the scheduler reads when a run is resumed
        trained = [p for p in parameters if p.requires_grad]
        decayed = [p for p in trained if id(p) not in undecayed]
        rest = [p for p in trained if id(p) in undecayed]
        groups += [{"params": decayed, **rates}, {"params": rest, **rates, "weight_decay": 0.0}]
    if trainer.only_idiom_tokens:  # other tokens' embeddings, in the same matrix, must not decay
        groups[0]["weight_decay"] = 0.0
    return [group for group in groups if group["params"]]


def _names_without_decay(root: nn.Module, kinds: Collection[str]) -> Iterator[nn.Parameter]:
    """Its biases (`bias`), and weights and biases of its normalisation layers (`norm`)."""
    for module in root.modules():
        is_norm = "norm" in type(module).__name__.lower()
        for name, parameter in module.named_parameters(recurse=False):
            if ("norm" in kinds and is_norm) or ("bias" in kinds and name.endswith("bias")):
                yield parameter


def num_warmup_steps(trainer: TrainerSettings, total: int) -> int:
    """`warmup_steps`, or else `warmup_ratio` of all steps, rounded."""
    return round(trainer.warmup_ratio * total) if trainer.warmup_steps is None else trainer.warmup_steps


def schedule(trainer: TrainerSettings, step: int, total: int) -> float:
    """Factor of the peak learning rate after `step` steps of `total` (0 at the first step of a warm-up)."""
    warmup = num_warmup_steps(trainer, total)
    if step < warmup:
        return step / warmup
    if trainer.schedule == "constant":
        return 1.0
    done = (step - warmup) / max(total - warmup, 1)
    return 1.0 - done if trainer.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def build_scheduler(
    optimizer: torch.optim.Optimizer, trainer: TrainerSettings, step: int, total: int
) -> LambdaLR:
    """The learning rates over `total` steps, of which `step` are done: their number is all of its state."""
    return LambdaLR(optimizer, lambda done: schedule(trainer, done, total), last_epoch=step - 1)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, with keys `<number of the parameter>.<name>`."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer of the same parameters the state that :func:`optimizer_tensors` returned."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        parameter = parameters[int(number)]
        has_weights_shape = value.shape == parameter.shape  # unlike a count of steps
        value = shard_like(value, parameter) if has_weights_shape else value
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
