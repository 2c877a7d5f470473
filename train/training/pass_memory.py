"""What one pass of a transformer keeps in memory, found without its weights and without computing it.

Two of its blocks are run, forward and back, on tensors that have a shape and no data (PyTorch's
`FakeTensorMode`), and what these would take is counted as they come and go. All blocks of a transformer are
alike, so two of them say what any number keeps. That takes a fraction of a second, whatever the model.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from train.encoder.kernels import use_byte_dropout, use_short_attention

_FUSED_ATTENTION = "fused_on_gpu"  # stands for a GPU's kernel, whose dropout keeps no mask
_NUM_BLOCKS = 2  # of which the second says what a block keeps, and all else is said once


@dataclass(frozen=True)
class PassMemory:
    """Bytes that one forward batch takes, beside weights and their gradients.

    Attributes:
        outside: kept for the backward pass by all that is not in blocks.
        block: kept by one block.
        hidden: of that its output, all that is kept of a block with activation checkpointing.
        outside_casts: low-precision copies of weights outside blocks, which autocast makes.
        block_casts: those of one block.
        forward: the most that the forward pass takes for a moment, beyond what is kept.
        backward: the same of the backward pass.
    """

    outside: int
    block: int
    hidden: int
    outside_casts: int
    block_casts: int
    forward: int
    backward: int


def empty_transformer(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> nn.Module:
    """The transformer that the encoder has for this configuration, in float32, its weights without data."""
    auto: Any = AutoModel
    with torch.device("meta"):
        model = auto.from_config(
            copy.deepcopy(config), dtype=torch.float32, trust_remote_code=trust_remote_code
        )
    encoder: nn.Module = model.get_encoder() if getattr(config, "is_encoder_decoder", False) else model
    return encoder


def blocks_of(transformer: nn.Module) -> nn.ModuleList:
    """A transformer's blocks: the list of modules that has the most weights.

    Raises:
        ValueError: if there is none.
    """
    lists = [module for module in transformer.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not lists:
        raise ValueError(f"{type(transformer).__name__} has no list of blocks")
    return max(lists, key=num_parameters)


def num_parameters(module: nn.Module) -> int:
    """Parameters, each once."""
    return sum(p.numel() for p in module.parameters())


def keep_two_blocks(transformer: nn.Module) -> None:
    """Take all blocks but the first two out of a transformer."""
    del blocks_of(transformer)[_NUM_BLOCKS:]


def measure_pass(
    transformer: Any,
    num_texts: int,
    num_tokens: int,
    *,
    dtype: torch.dtype | None,
    on_cpu: bool,
    bytes_masks: bool,
) -> PassMemory:
    """What a forward batch takes.

    Args:
        transformer: with two blocks at most, on the device `meta`, and changed here. Its parameters say by
            `requires_grad` what is trained; nothing is kept if none is.
        num_texts, num_tokens: of the batch: B and T.
        dtype: of autocast; None = all in float32.
        on_cpu: whether attention and dropout are a CPU's; else a GPU's.
        bytes_masks: on a CPU, whether dropout draws bytes.
    """
    blocks = list(blocks_of(transformer))
    with FakeTensorMode(allow_non_fake_inputs=True):
        transformer.to_empty(device="cpu")
        _set_kernels(transformer, on_cpu=on_cpu, bytes_masks=bytes_masks)
        transformer.train()
        ids = torch.zeros(num_texts, num_tokens, dtype=torch.long)
        mask = torch.ones_like(ids)
        watch = _Watch(transformer)
        is_trained = any(p.requires_grad for p in transformer.parameters())
        with watch, torch.set_grad_enabled(is_trained), watch.at_block(blocks[-1]) as seen:
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                hidden = transformer(input_ids=ids, attention_mask=mask).last_hidden_state
                output = (hidden * mask.unsqueeze(-1)).sum(dim=1)
            kept, casts, forward_peak = watch.live, watch.casts, watch.peak
            del hidden
            watch.peak = watch.live
            if is_trained:
                with watch.gradients_apart(list(transformer.parameters())):
                    output.sum().backward()
    num_blocks = len(blocks)
    return PassMemory(
        outside=kept - num_blocks * seen.kept,
        block=seen.kept,
        hidden=seen.output,
        outside_casts=casts - num_blocks * seen.casts,
        block_casts=seen.casts,
        forward=max(forward_peak - kept, 0),
        backward=max(watch.peak - kept, 0),
    )


def _set_kernels(transformer: Any, *, on_cpu: bool, bytes_masks: bool) -> None:
    """Attention and dropout as they are on the device."""
    if getattr(transformer.config, "is_causal", None) is False:  # as the encoder loads such a decoder
        transformer.set_attn_implementation("eager")
    elif on_cpu:
        use_short_attention(transformer)
    elif transformer.config._attn_implementation == "sdpa":
        transformer.set_attn_implementation(_FUSED_ATTENTION)
    if bytes_masks or not on_cpu:  # a GPU's dropout keeps a byte a value too
        use_byte_dropout(transformer, transformer)


def _attend(*given: Any, **named: Any) -> tuple[Tensor, None]:
    return sdpa_attention_forward(*given, **{**named, "dropout": 0.0})


AttentionInterface.register(_FUSED_ATTENTION, _attend)
AttentionMaskInterface.register(_FUSED_ATTENTION, sdpa_mask)


@dataclass
class _Seen:
    """Bytes of one block: what it keeps, its copies of weights, its output."""

    kept: int = 0
    casts: int = 0
    output: int = 0


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that are made within this context and still there.

    Attributes:
        live: bytes, without copies of weights and gradients of parameters.
        peak: the most of them at a time.
        casts: bytes of copies of weights.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        tensors: Sequence[Tensor] = [*model.parameters(), *model.buffers()]
        self._weights = {_key(tensor) for tensor in tensors}
        self._sizes: dict[int, int] = {}
        self._is_cast: set[int] = set()
        self._last = 0  # the live bytes when the latest operation had just ended
        self.live = self.peak = self.casts = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.peak = max(self.peak, self._last)
        product = _grouped_product if func is torch.ops.aten._grouped_mm.default else func
        made = product(*args, **(kwargs or {}))
        is_cast = func is torch.ops.aten._to_copy.default and _key(args[0]) in self._weights
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor, is_cast=is_cast)
        if func is torch.ops.aten.embedding_dense_backward.default:  # as large as the vocabulary
            self._set_aside(made)
        self._last = self.live
        return made

    def _count(self, tensor: Tensor, *, is_cast: bool) -> None:
        storage, key = tensor.untyped_storage(), _key(tensor)
        if key in self._weights or key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        if is_cast:
            self._is_cast.add(key)
            self.casts += self._sizes[key]
        else:
            self.live += self._sizes[key]
        weakref.finalize(storage, self._drop, key).atexit = False

    def _drop(self, key: int) -> None:
        """Count memory that is free again no longer."""
        size = self._sizes.pop(key)
        if key in self._is_cast:
            self._is_cast.discard(key)
            self.casts -= size
        else:
            self.live -= size

    def _set_aside(self, gradient: Any) -> None:
        """Count a tensor no longer, though it stays."""
        size = self._sizes.get(_key(gradient), 0)
        self._sizes[_key(gradient)] = 0
        self.live -= size
        self._last -= size

    @contextmanager
    def gradients_apart(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Within this context, gradients of parameters are not counted once they are complete."""
        trained: list[Any] = [p for p in parameters if p.requires_grad]
        hooks = [p.register_hook(self._set_aside) for p in trained]
        hooks += [p.register_post_accumulate_grad_hook(lambda p: self._set_aside(p.grad)) for p in trained]
        yield
        self.peak = max(self.peak, self._last)
        for hook in hooks:
            hook.remove()

    @contextmanager
    def at_block(self, block: nn.Module) -> Iterator[_Seen]:
        """What the block keeps of its forward pass within this context."""
        seen = _Seen()

        def before(*_: Any) -> None:
            seen.kept, seen.casts = -self.live, -self.casts

        def after(_module: Any, _inputs: Any, output: Any) -> None:
            seen.kept, seen.casts = seen.kept + self.live, seen.casts + self.casts
            hidden = output[0] if isinstance(output, tuple) else output
            seen.output = hidden.untyped_storage().nbytes()

        hooks = [block.register_forward_pre_hook(before), block.register_forward_hook(after)]
        yield seen
        for hook in hooks:
            hook.remove()


def _grouped_product(a: Tensor, b: Tensor, ends: Tensor, *_: Any, **__: Any) -> Tensor:
    """The products of a mixture's experts without data: PyTorch's own have them in bfloat16 alone (2.13).

    Args:
        a: (S, M), texts' tokens in the order of their experts; of a weight's gradient (M, S).
        b: (E, M, N), weights; of a weight's gradient (S, N).
        ends: (E,), of each expert's tokens.

    Returns:
        (S, N); of a weight's gradient (E, M, N).
    """
    return a.new_empty((len(a), b.shape[2]) if b.dim() == 3 else (len(ends), len(a), b.shape[1]))


def _key(tensor: Tensor) -> int:
    """The tensor's memory, which its views share."""
    return int(tensor.untyped_storage()._cdata)
