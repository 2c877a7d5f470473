"""The processes of a launch (`accelerate launch`, `torchrun`): common decisions and sums.

Every process builds the same batches and makes the same decisions; only the main one writes. The texts are
divided among the processes, and their embeddings are gathered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from idiomtune.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn


T = TypeVar("T")

_BUCKET = 2**24  # gradient elements summed over the processes in one call: 64 MB in float32


def rank_of_launch() -> int:
    """This process' number among those of its launch, before anything heavy is imported."""
    number = os.environ.get("RANK", "0")
    return int(number) if number.isdigit() else 0


def has_peers() -> bool:
    """Whether the launch has several processes."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


class PeerError(UserError):
    """Another process of the launch failed, or ended."""


@dataclass(frozen=True)
class Processes:
    """This process' rank in its launch, and operations of all processes together.

    All processes must call each method, in the same order. For a single process every method is a no-op or
    returns its argument.

    Attributes:
        sharding: how the trained weights are sharded, if the launch asks for it.
    """

    rank: int = 0
    count: int = 1
    sharding: Any = None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that decides, writes and reports."""
        return self.rank == 0

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Compute in the main process; all processes get the result, or an error if it failed."""
        if self.count == 1:
            return compute()
        from accelerate.utils import broadcast_object_list

        outcome: list[Any] = [None, None]
        if self.is_main:
            try:
                outcome[0] = compute()
            except Exception as error:
                broadcast_object_list([None, f"{type(error).__name__}: {error}"])
                raise
        broadcast_object_list(outcome)
        result, failure = outcome
        if failure is not None:
            raise PeerError(f"the main process failed: {failure}")
        return cast(T, result)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.count == 1:
            return flag
        import torch
        from accelerate import PartialState

        return bool(self._reduce_tensor(torch.tensor([float(flag)], device=PartialState().device)).item())

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> Tensor:
        """The rows of all processes, in order of rank; without gradient.

        Args:
            rows: of this process, (lengths[rank], D), of one dtype in all processes.
            lengths: number of rows of each process.

        Returns:
            (sum(lengths), D).
        """
        if self.count == 1:
            return rows
        import torch
        from accelerate.utils import gather

        longest = max(lengths)
        padded = rows.new_zeros(longest, rows.shape[1])
        padded[: len(rows)] = rows
        blocks: Tensor = gather(padded).view(self.count, longest, -1)  # (processes, longest, D)
        return torch.cat([block[:length] for block, length in zip(blocks, lengths, strict=True)])

    def sum_gradients(self, parameters: Iterable[nn.Parameter], *, divide: bool = False) -> None:
        """Sum the gradients that the processes computed, each from its part of the texts.

        A parameter that no process used still has no gradient afterwards. Gradients of sharded parameters are
        not touched: each backward pass has already summed them.

        Args:
            divide: take the mean instead, for gradients that every process computed from the whole batch.
        """
        if self.count == 1:
            return
        import torch
        from torch.distributed.tensor import DTensor

        chosen = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if not chosen:
            return
        used = torch.tensor([float(p.grad is not None) for p in chosen], device=chosen[0].device)
        for p, count in zip(chosen, self._reduce_tensor(used).tolist(), strict=True):
            if count and p.grad is None:
                p.grad = torch.zeros_like(p)
        gradients = [p.grad for p in chosen if p.grad is not None]
        while gradients:
            size = 0
            bucket: list[Tensor] = []
            while gradients and (not bucket or size + gradients[0].numel() <= _BUCKET):
                size += gradients[0].numel()
                bucket.append(gradients.pop(0))
            flat = self._reduce_tensor(torch.cat([gradient.reshape(-1) for gradient in bucket]))
            if divide:
                flat /= self.count
            parts = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def same_parameters(self, *modules: nn.Module) -> None:
        """Copy the main process' weights to all others."""
        if self.count == 1:
            return
        from accelerate.utils import broadcast

        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.data.copy_(broadcast(tensor.data.clone()))

    def _reduce_tensor(self, tensor: Tensor) -> Tensor:
        from accelerate.utils import reduce

        result: Tensor = reduce(tensor, reduction="sum")
        return result


def is_lost_peer(error: Exception) -> bool:
    """Whether an error only says that another process of the launch is gone."""
    import torch.distributed as dist

    if isinstance(error, PeerError):
        return False
    message = str(error)
    signs = ("Connection closed by peer", "Connection reset by peer", "gloo/transport")
    return isinstance(error, getattr(dist, "DistError", ())) or any(sign in message for sign in signs)
