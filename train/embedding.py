"""A step's embeddings and the way of the loss' gradient back: shared out over processes, in bounded memory.

The loss needs the embeddings of the whole batch; the encoder's graph of the whole batch it does not need. So
each process embeds its share of the passes, all get all embeddings, compute the same loss, and carry its
gradient by the embeddings through their own passes; the encoder's gradients are then added up. That is exact
for any loss on embeddings, mined triplets and masked candidates included, and knows nothing of the loss.

With gradient caching (Gao et al. 2021, arXiv 2101.06983) the first forward pass keeps no graph; each pass is
made again, with the same dropout, when its gradient is there: memory is that of one pass whatever the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from accelerate import Accelerator
from accelerate.utils import AutocastKwargs
from torch import Tensor

from train.encoder import Encoder
from train.passes import Pass
from train.processes import Processes
from train.prompts import Request
from train.schedule import seed_everything
from train.sharding import is_sharded, reshard

_AT_ONCE = 100_000  # a token id and its place in the text take about 100 bytes


def share_out(passes: Sequence[Pass], count: int) -> list[list[int]]:
    """The passes that each of `count` processes makes, by number: longest first, to whoever has least."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(range(len(passes)), key=lambda n: -passes[n].size):
        least = loads.index(min(loads))
        shares[least].append(number)
        loads[least] += passes[number].size
    return shares


def deal_out(passes: Sequence[Pass], count: int) -> tuple[list[Pass], list[list[int]]]:
    """The same for sharded weights: equally many passes for each process, made side by side.

    Returns:
        The passes, with one more where some process would have one less, and who makes which.
    """
    shares = [list(range(rank, len(passes), count)) for rank in range(count)]
    short = [share for share in shares if len(share) < len(shares[0])]
    for share in short:
        share.append(len(passes))
    return [*passes, *([passes[-1].for_company()] if short else [])], shares


class SharedEmbeddings:
    """Passes of an encoder over all processes, one call at a time.

    Args:
        autocast: the context of forward passes.
    """

    def __init__(
        self,
        encoder: Encoder,
        processes: Processes,
        autocast: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._encoder = encoder
        self._processes = processes
        self._autocast = autocast
        self._is_sharded = is_sharded(encoder)

    def plan(self, requests: Sequence[Request]) -> tuple[list[Pass], list[list[int]]]:
        """The passes, and which process makes which."""
        passes = self._encoder.passes(requests, at_least=self._processes.count)
        if self._is_sharded:
            return deal_out(passes, self._processes.count)
        return passes, share_out(passes, self._processes.count)

    def run(
        self,
        passes: Sequence[Pass],
        numbers: Sequence[int],
        seed: Callable[[int], None] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Tensor]:
        """Make passes, each with its own random numbers; one (n, D) for each."""
        pieces = []
        with self._autocast():  # once: each weight is then cast once, for all passes
            for number in numbers:
                if seed is not None:
                    seed(number)
                one = passes[number]
                pieces.append(self._encoder.embed(one)[: len(one.requests)])
                if on_progress is not None:
                    on_progress(one.num_texts)
        return pieces

    def together(
        self, pieces: Sequence[Tensor], passes: Sequence[Pass], shares: Sequence[Sequence[int]]
    ) -> Tensor:
        """(R, D), row i for request i, from the pieces of all processes; a graph where it is one process'."""
        order = [i for share in shares for number in share for i in passes[number].requests]
        if self._processes.count == 1:
            rows = torch.cat(list(pieces))
        else:
            device = self._encoder.device
            mine = [torch.zeros(0, self._encoder.dimension, device=device), *(p.detach() for p in pieces)]
            lengths = [sum(len(passes[number].requests) for number in share) for share in shares]
            rows = self._processes.gather(torch.cat([piece.float() for piece in mine]), lengths)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
        return rows[back.to(rows.device)]


@torch.no_grad()
def embed_all(
    encoder: Encoder,
    requests: Sequence[Request],
    processes: Processes,
    on_progress: Callable[[int], None] | None = None,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Tensor:
    """(R, D) without a graph, each process having embedded its share; in all of them.

    Token ids are in memory of at most `_AT_ONCE` requests, those of one text together.
    """
    if not requests:
        return torch.zeros(0, encoder.dimension, device=encoder.device)
    if len(requests) > _AT_ONCE:
        order = sorted(range(len(requests)), key=lambda i: requests[i].text)
        rows = torch.empty(len(requests), encoder.dimension, device=encoder.device)
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            of_some = embed_all(encoder, [requests[i] for i in some], processes, on_progress, autocast)
            rows[torch.tensor(some, device=rows.device)] = of_some.to(rows.dtype)
        return rows
    shared = SharedEmbeddings(encoder, processes, autocast)
    passes, shares = shared.plan(requests)
    mine = shares[processes.rank]
    pieces = shared.run(passes, mine, on_progress=on_progress)
    reshard(encoder)
    if on_progress is not None:
        on_progress(sum(one.num_texts for number, one in enumerate(passes) if number not in set(mine)))
    return shared.together(pieces, passes, shares)


class TrainedEmbeddings:
    """Embeds a step's requests, and brings the loss' gradient to the encoder's parameters.

    Random numbers of a pass are a function of the seed, the step and the pass, so that neither gradient
    caching nor the number of processes changes what dropout draws.

    Args:
        accelerator: for autocast and the gradient scaler.
        seed: of the run.
        caching: keep no graph, and make each pass again for its gradient.
    """

    def __init__(
        self,
        encoder: Encoder,
        accelerator: Accelerator,
        processes: Processes,
        *,
        seed: int,
        caching: bool = False,
    ) -> None:
        self._accelerator = accelerator
        self._processes = processes
        self._seed = seed
        self._caching = caching
        # Else weights that were cast would stay, of all blocks, until the last pass is made.
        kept = AutocastKwargs(cache_enabled=not is_sharded(encoder))
        self._shared = SharedEmbeddings(encoder, processes, lambda: accelerator.autocast(kept))
        self._left: Callable[[], None] = lambda: None

    def __call__(
        self,
        requests: Sequence[Request],
        step: int,
        micro: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """(R, D), row i for request i, of this step and micro-step; :meth:`backward` takes a loss of them."""

        def seed(number: int) -> None:
            seed_everything(self._seed, step, micro, 1 + number)

        passes, shares = self._shared.plan(requests)
        mine = shares[self._processes.rank]
        with torch.set_grad_enabled(not self._caching):
            pieces = self._shared.run(passes, mine, seed)
            embeddings = self._shared.together(pieces, passes, shares)
        if on_progress is not None:
            on_progress(sum(one.num_texts for one in passes))
        seed_everything(self._seed, step, micro)  # of what the objective's own modules draw
        if self._processes.count == 1 and not self._caching:
            return embeddings
        leaf = embeddings.detach().requires_grad_()

        def backward_of_passes() -> None:
            assert leaf.grad is not None
            for place, number in enumerate(mine):
                piece = self._shared.run(passes, [number], seed)[0] if self._caching else pieces[place]
                rows = torch.tensor(passes[number].requests, dtype=torch.long)
                piece.backward(leaf.grad[rows].to(piece.dtype))  # type: ignore[no-untyped-call]

        self._left = backward_of_passes
        return leaf

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss of the embeddings to the parameters'."""
        self._accelerator.backward(loss)
        left, self._left = self._left, lambda: None
        left()
