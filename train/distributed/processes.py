"""The processes of one launch (`accelerate launch`, `torchrun`): what they decide and compute together.

Every process builds the same batches and takes the same decisions; the main one alone writes. Texts are
shared out, and what the model made of them is brought together again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from train.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from train.distributed.sharding import Sharding

T = TypeVar("T")

_BUCKET = 2**24  # numbers that are summed over the processes at once: 64 MB in float32


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
    """Which process this is, and what all of them do together; a single process skips the communication.

    Each method must be called by all processes, in the same order.

    Attributes:
        sharding: how the launch wants the weights of what is trained to be shared out, if it does.
    """

    rank: int = 0
    count: int = 1
    sharding: Sharding | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that decides, writes and talks."""
        return self.rank == 0

    def from_main(self, compute: Callable[[], T]) -> T:
        """What the main process computes, or the error it meets, in all of them."""
        if self.count == 1:
            return compute()
        from accelerate.utils import broadcast_object_list

        outcome: list[Any] = [None, None]
        error: Exception | None = None
        if self.is_main:
            try:
                outcome[0] = compute()
            except Exception as met:
                error, outcome[1] = met, f"{type(met).__name__}: {met}"
        broadcast_object_list(outcome)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise PeerError(f"the main process failed: {outcome[1]}")
        result: T = outcome[0]
        return result

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        if self.count == 1:
            return flag
        return bool(self._sum_of_all(float(flag)).item())

    def gather(self, mine: Tensor, lengths: Sequence[int]) -> Tensor:
        """The rows of all processes, in the order of their numbers; without gradient.

        Args:
            mine: (lengths[rank], D), of one type in all processes.
            lengths: rows of each process.

        Returns:
            (sum(lengths), D).
        """
        if self.count == 1:
            return mine
        import torch
        from accelerate.utils import gather

        longest = max(lengths)
        padded = mine.new_zeros(longest, mine.shape[1])
        padded[: len(mine)] = mine
        blocks: Tensor = gather(padded).view(self.count, longest, -1)
        return torch.cat([block[:length] for block, length in zip(blocks, lengths, strict=True)])

    def sum_gradients(self, parameters: Iterable[nn.Parameter], *, divide: bool = False) -> None:
        """Add up the gradients that the processes have for their shares of the texts.

        A parameter that none of them used has no gradient afterwards either. Those of sharded ones are added
        up by each backward pass, and left alone.

        Args:
            divide: take the mean: of what every process computed whole.
        """
        if self.count == 1:
            return
        import torch
        from torch.distributed.tensor import DTensor

        chosen = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if not chosen:
            return
        used = torch.tensor([float(p.grad is not None) for p in chosen], device=chosen[0].device)
        used = self._reduced(used)
        for p, count in zip(chosen, used.tolist(), strict=True):
            if count and p.grad is None:
                p.grad = torch.zeros_like(p)
        gradients = [p.grad for p in chosen if p.grad is not None]
        while gradients:
            size = 0
            some: list[Tensor] = []
            while gradients and (not some or size + gradients[0].numel() <= _BUCKET):
                size += gradients[0].numel()
                some.append(gradients.pop(0))
            flat = self._reduced(torch.cat([gradient.reshape(-1) for gradient in some]))
            if divide:
                flat /= self.count
            parts = torch.split(flat, [gradient.numel() for gradient in some])
            for gradient, part in zip(some, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def same_parameters(self, *modules: nn.Module) -> None:
        """Give all processes the main one's weights, whatever each has drawn or loaded."""
        if self.count == 1:
            return
        from accelerate.utils import broadcast

        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.data.copy_(broadcast(tensor.data.clone()))

    def _sum_of_all(self, value: float) -> Tensor:
        import torch
        from accelerate import PartialState

        return self._reduced(torch.tensor([value], device=PartialState().device))

    def _reduced(self, tensor: Tensor) -> Tensor:
        from accelerate.utils import reduce

        result: Tensor = reduce(tensor, reduction="sum")
        return result


def is_lost_peer(error: Exception) -> bool:
    """Whether an error says no more than that another process of the launch is gone."""
    import torch.distributed as dist

    if isinstance(error, PeerError):
        return False
    told = str(error)
    return isinstance(error, getattr(dist, "DistError", ())) or any(
        sign in told for sign in ("Connection closed by peer", "Connection reset by peer", "gloo/transport")
    )
