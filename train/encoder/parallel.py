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
from torch import Tensor

from train.distributed.processes import Processes
from train.distributed.sharding import is_sharded, reshard
from train.encoder.encoder import Encoder
from train.encoder.forward import Pass
from train.requests import Request

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
