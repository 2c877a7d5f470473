"""The memory that one training step needs, predicted from the model's configuration and the batch's lengths.

Weights, gradients and the optimizer's moments follow from the number of parameters; what the passes keep is
found by :mod:`train.training.pass_memory`. Not counted: what a loss keeps beside the embeddings, gaps between
tensors in memory, and the libraries themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedConfig

from train.config.trainer import LoraSettings
from train.encoder.lora import add_adapters
from train.training.pass_memory import (
    PassMemory,
    blocks_of,
    empty_transformer,
    keep_two_blocks,
    measure_pass,
    num_parameters,
)

Trained = Literal["all", "adapters", "tokens", "nothing"]
_FLOAT = 4  # bytes: weights, gradients and moments are in float32
_MOMENTS = 2  # of AdamW


class Shape(NamedTuple):
    """Of a forward batch: B texts of T tokens, padding included."""

    num_texts: int
    num_tokens: int

    @property
    def size(self) -> int:
        """Its tokens."""
        return self.num_texts * self.num_tokens


@dataclass(frozen=True)
class Way:
    """How a step is computed.

    Attributes:
        on_cpu: whether on a CPU; else on a GPU.
        dtype: of autocast; None = all in float32.
        trained: of the encoder: all, adapters (LoRA), the token embeddings, or nothing.
        lora_rank, lora_dropout, lora_targets: of adapters.
        bytes_masks: on a CPU, whether dropout draws bytes.
        caching: with gradient caching.
        checkpointing: with activation checkpointing.
        num_processes: among which texts are divided.
        sharded: whether they divide the weights too.
        gathered: sharded, whether weights stay gathered after a forward pass.
        offloaded: sharded, whether the shards are in main memory.
    """

    on_cpu: bool
    dtype: torch.dtype | None = None
    trained: Trained = "all"
    lora_rank: int = 16
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] | None = None
    bytes_masks: bool = True
    caching: bool = False
    checkpointing: bool = False
    num_processes: int = 1
    sharded: bool = False
    gathered: bool = False
    offloaded: bool = False


@dataclass(frozen=True)
class StepMemory:
    """Bytes on one device; the parts are not all there at the same time.

    Attributes:
        weights: of the encoder, or of its shard, and of an objective's own modules.
        gradients: of what is trained.
        moments: of the optimizer.
        passes: what the passes keep, gather and need for a moment.
        others: what else the run holds beside.
        loading: of the whole model, where it is loaded beside a sharded one.
        total: the most at a time.
        operations: floating-point operations of the step, in one process.
    """

    weights: int
    gradients: int
    moments: int
    passes: int
    others: int
    loading: int
    total: int
    operations: float


class _Sizes(NamedTuple):
    """Numbers of parameters of a whole transformer; of them those that are trained, or that a token meets."""

    all: int
    trained: int
    num_blocks: int
    block: int
    active_block: int
    outside: int
    trained_block: int
    trained_outside: int


class Model:
    """A transformer by its configuration alone.

    Args:
        config: of transformers.
        trust_remote_code: whether code that comes with the checkpoint may be run.

    Attributes:
        num_parameters: of the whole transformer.
        num_blocks: that it has.
        width: of its hidden states.
        can_checkpoint: whether it supports activation checkpointing.
    """

    def __init__(self, config: PreTrainedConfig, *, trust_remote_code: bool = False) -> None:
        self._whole = empty_transformer(config, trust_remote_code=trust_remote_code)
        self._config = config
        self.num_parameters = num_parameters(self._whole)
        self.num_blocks = len(blocks_of(self._whole))
        self.width: int = getattr(config, "hidden_size", None) or config.d_model
        self.can_checkpoint = bool(getattr(self._whole, "supports_gradient_checkpointing", False))
        keep_two_blocks(self._whole)
        self.measured = lru_cache(maxsize=None)(self._measured)
        self.sizes = lru_cache(maxsize=None)(self._sizes)

    def _trained(self, way: Way) -> nn.Module:
        """Its first blocks, of which that requires a gradient which is trained."""
        model = copy.deepcopy(self._whole)
        if way.trained == "adapters":
            with torch.device("meta"):
                targets = None if way.lora_targets is None else list(way.lora_targets)
                lora = {"rank": way.lora_rank, "dropout": way.lora_dropout, "target_modules": targets}
                add_adapters(model, LoraSettings(**lora, alpha=None))
        elif way.trained != "all":
            model.requires_grad_(False)
        if way.trained == "tokens":
            embeddings: Any = model
            embeddings.get_input_embeddings().weight.requires_grad_(True)
        return model

    def _measured(self, way: Way, shape: Shape) -> PassMemory:
        return measure_pass(
            self._trained(way), *shape, dtype=way.dtype, on_cpu=way.on_cpu, bytes_masks=way.bytes_masks
        )

    def _sizes(self, way: Way) -> _Sizes:
        model = self._trained(way)
        blocks = blocks_of(model)
        block, trained_block = num_parameters(blocks[-1]), _num_trained(blocks[-1])
        outside = num_parameters(model) - len(blocks) * block
        trained_outside = _num_trained(model) - len(blocks) * trained_block
        n = self.num_blocks
        return _Sizes(
            outside + n * block,
            trained_outside + n * trained_block,
            n,
            block,
            block - _num_passed_by(blocks[-1], self._config),
            outside,
            trained_block,
            trained_outside,
        )


def _num_trained(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _num_passed_by(block: nn.Module, config: PreTrainedConfig) -> int:
    """Parameters of a mixture's experts that a token is not sent to."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    count: int | None = next((found for name in names if (found := getattr(config, name, None))), None)
    chosen: int | None = getattr(config, "num_experts_per_tok", None)
    if not count or not chosen:
        return 0
    experts = sum(p.numel() for p in block.parameters() if p.dim() == 3 and len(p) == count)
    passed_by: int = experts * (count - chosen) // count
    return passed_by


def _asks(way: Way) -> Way:
    """The part of it that decides what one pass keeps."""
    return replace(
        way,
        caching=False,
        checkpointing=False,
        num_processes=1,
        sharded=False,
        gathered=False,
        offloaded=False,
    )


def predict(
    model: Model,
    micro_steps: Sequence[Sequence[Shape]],
    way: Way,
    *,
    num_module_parameters: int = 0,
    others: int = 0,
) -> StepMemory:
    """What a step needs in one process.

    Args:
        micro_steps: the forward batches of each micro-step, the longest texts first, of all processes.
        num_module_parameters: of an objective's own modules, which are trained too.
        others: bytes that the run holds besides (a teacher's embeddings, a base model's weights).
    """
    asked = _asks(way)
    sizes = model.sizes(asked)
    own = [list(shapes[:: way.num_processes]) for shapes in micro_steps if shapes]
    own = own or [[Shape(1, 1)]]
    shards = way.num_processes if way.sharded else 1
    here = 0 if way.offloaded else 1
    weights = here * -(-sizes.all * _FLOAT // shards) + num_module_parameters * _FLOAT
    gradients = here * -(-sizes.trained * _FLOAT // shards) + num_module_parameters * _FLOAT
    moments = _MOMENTS * gradients
    found = [_passes(model, shapes, way, sizes, gradients, has_earlier=len(own) > 1) for shapes in own]
    passes, most = map(max, zip(*found, strict=True))
    if way.sharded:
        # A pass gathers two blocks and what is outside; of one of these there are two copies of the gradient.
        unsharded = sizes.all if way.gathered else 2 * sizes.block + sizes.outside
        gathered = (unsharded + 2 * max(sizes.trained_block, sizes.trained_outside)) * _FLOAT
        passes, most = passes + gathered, most + gathered
    # On a GPU AdamW works on all parameters at once, and its square roots take as much as these.
    update = gradients + (0 if way.on_cpu else here * -(-sizes.trained * _FLOAT // shards))
    loading = sizes.all * _FLOAT if way.sharded else 0
    return StepMemory(
        weights=weights,
        gradients=gradients,
        moments=moments,
        passes=passes,
        others=others,
        loading=loading,
        total=weights + moments + others + max(most, update, loading),
        operations=_operations(model, own, way, sizes),
    )


def _passes(
    model: Model, shapes: Sequence[Shape], way: Way, sizes: _Sizes, gradients: int, *, has_earlier: bool
) -> tuple[int, int]:
    """The most that a micro-step's passes take at a time; and the most with the gradients that are there."""
    largest, smallest = shapes[0], shapes[-1]
    first, last = model.measured(_asks(way), largest), model.measured(_asks(way), smallest)
    num_blocks = sizes.num_blocks

    def kept_of(measured: PassMemory) -> int:
        if way.checkpointing:  # of each block its output, and of the first its input
            return max(measured.outside, measured.hidden) + num_blocks * measured.hidden
        return measured.outside + num_blocks * measured.block

    def kept(shape: Shape) -> float:
        """A token's price is linear in its text's length: attention may keep a row of weights for each."""
        prices = kept_of(first) / largest.size, kept_of(last) / smallest.size
        span = largest.num_tokens - smallest.num_tokens
        part = (shape.num_tokens - smallest.num_tokens) / span if span else 1.0
        return shape.size * (prices[1] + part * (prices[0] - prices[1]))

    rows = (
        sum(shape.num_texts for shape in shapes) * model.width * _FLOAT * 2
    )  # embeddings and their gradient
    if way.trained == "nothing":
        return rows + first.forward, rows + first.forward
    casts = first.outside_casts + num_blocks * first.block_casts
    momentary = first.backward
    if way.checkpointing:  # one block is computed again
        momentary = first.block + first.block_casts + max(first.forward, first.backward)
    held = shapes[:1] if way.caching else shapes
    all_kept = sum(kept(shape) for shape in held)
    forward_casts, backward_casts = casts, 0 if way.checkpointing else casts
    if (
        way.sharded or way.trained != "all"
    ):  # autocast then keeps no copy, and the graph of each pass has its own
        forward_casts = backward_casts = 0 if way.checkpointing else casts * len(held)
    forward = all_kept + forward_casts + first.forward
    backward = all_kept + backward_casts + momentary
    passes = max(forward, backward)
    most = passes + (gradients if has_earlier or (way.caching and len(shapes) > 1) else 0)
    if len(held) > 1:  # once the last batch's graph is gone, and all gradients are there
        most = max(most, gradients + backward - kept(held[-1]))
    return rows + int(passes), rows + int(most)


def _operations(model: Model, micro_steps: Sequence[Sequence[Shape]], way: Way, sizes: _Sizes) -> float:
    """Two a weight and token forward, as many again for the gradient of inputs, and of weights if trained."""
    times = 1.0
    if way.trained != "nothing":
        times += (2 if way.trained == "all" else 1) + way.caching + way.checkpointing
    blocks = sizes.num_blocks * sizes.active_block
    shapes = [shape for micro in micro_steps for shape in micro]
    attention = sum(shape.size * shape.num_tokens for shape in shapes) * 4 * model.width * sizes.num_blocks
    return times * (2.0 * blocks * sum(shape.size for shape in shapes) + attention)
