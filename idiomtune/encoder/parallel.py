"""Forward batches divided among the processes of a launch, and their embeddings gathered.

A loss needs the embeddings of the whole batch, but not the encoder's graph of the whole batch. So each
process embeds its part of the texts, all of them get all embeddings and compute the same loss, and each
backpropagates the loss's gradient with respect to the embeddings through its own forward batches; the
encoder's gradients are then summed. That is exact for any loss on embeddings, mined triplets and masked
candidates included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import ForwardBatch, in_request_order
from idiomtune.encoder.sharding import is_sharded, reshard
from idiomtune.io.processes import Processes
from idiomtune.requests import EmbeddingRequest

_CHUNK_SIZE = 100_000  # requests; a token id with its offsets takes about 100 bytes


@dataclass(frozen=True)
class Partition:
    """Forward batches, and which process runs which.

    Attributes:
        batches: of all processes.
        numbers: for each process, the batches it runs, by position in `batches`, in that order.
    """

    batches: list[ForwardBatch]
    numbers: list[list[int]]


def partition_by_size(batches: Sequence[ForwardBatch], num_processes: int) -> Partition:
    """Each batch, the largest first, goes to the process that has the fewest tokens so far."""
    numbers: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [0] * num_processes
    for number in sorted(range(len(batches)), key=lambda n: -batches[n].num_tokens):
        idlest = loads.index(min(loads))
        numbers[idlest].append(number)
        loads[idlest] += batches[number].num_tokens
    return Partition(list(batches), numbers)


def partition_evenly(batches: Sequence[ForwardBatch], num_processes: int) -> Partition:
    """Equally many batches for each process, as sharded weights need: all processes run theirs side by side.

    A process that would have one batch less than the others gets a dummy.
    """
    numbers = [list(range(rank, len(batches), num_processes)) for rank in range(num_processes)]
    short = [batch_numbers for batch_numbers in numbers if len(batch_numbers) < len(numbers[0])]
    for batch_numbers in short:
        batch_numbers.append(len(batches))  # the dummy
    return Partition([*batches, batches[-1].dummy()] if short else list(batches), numbers)


class ParallelEncoder:
    """An encoder whose forward batches are divided among all processes.

    Args:
        autocast: the context of forward passes.
    """

    def __init__(
        self, encoder: Encoder, processes: Processes, autocast: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._encoder = encoder
        self._processes = processes
        self._autocast = autocast
        self._is_sharded = is_sharded(encoder)

    def partition(self, requests: Sequence[EmbeddingRequest]) -> Partition:
        """The forward batches of these requests, and which process runs which."""
        batches = self._encoder.forward_batches(requests, min_batches=self._processes.count)
        divide = partition_evenly if self._is_sharded else partition_by_size
        return divide(batches, self._processes.count)

    def run(
        self,
        batches: Sequence[ForwardBatch],
        numbers: Sequence[int],
        seed: Callable[[int], None] | None = None,
        on_run: Callable[[ForwardBatch], None] | None = None,
    ) -> list[Tensor]:
        """Embed some of the batches; (n, D) for each, n its number of requests.

        Args:
            numbers: which batches.
            seed: called with a batch's number before it is run.
            on_run: called with each batch after it was run.
        """
        pieces = []
        with self._autocast():  # one context, so that each weight is cast once for all batches
            for number in numbers:
                if seed is not None:
                    seed(number)
                batch = batches[number]
                pieces.append(self._encoder.embed(batch)[: len(batch.requests)])
                if on_run is not None:
                    on_run(batch)
        return pieces

    def gather(self, pieces: Sequence[Tensor], partition: Partition) -> Tensor:
        """(R, D), row i for request i, in all processes; with a graph if there is only one process.

        Args:
            pieces: (n, D) each, from :meth:`run`, of the batches that this process ran.
        """
        requests = [
            [i for number in numbers for i in partition.batches[number].requests]
            for numbers in partition.numbers
        ]
        order = [i for process_requests in requests for i in process_requests]
        if self._processes.count == 1:
            return in_request_order(torch.cat(list(pieces)), order)
        # A process may have no piece at all.
        none = torch.zeros(0, self._encoder.dimension, device=self._encoder.device)
        rows = torch.cat([piece.detach().float() for piece in (none, *pieces)])
        lengths = [len(process_requests) for process_requests in requests]
        return in_request_order(self._processes.gather(rows, lengths), order)


@torch.no_grad()
def embed_all(
    encoder: Encoder,
    requests: Sequence[EmbeddingRequest],
    processes: Processes,
    on_progress: Callable[[int], None] | None = None,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    *,
    with_readings: bool = True,
) -> Tensor:
    """(R, D), row i for request i, without a graph. Each process embeds its part; all get all rows.

    Token ids of at most `_CHUNK_SIZE` requests are in memory at a time, those of one text together; of texts
    that are read in several ways, three times as many.

    Args:
        on_progress: called with the number of texts after each forward batch.
        with_readings: whether the encoder may read texts in further ways (:meth:`Encoder.readings`).
    """
    if not requests:
        return torch.zeros(0, encoder.dimension, device=encoder.device)
    if len(requests) > _CHUNK_SIZE:
        order = sorted(range(len(requests)), key=lambda i: requests[i].text)
        rows = torch.empty(len(requests), encoder.dimension, device=encoder.device)  # (R, D)
        for start in range(0, len(order), _CHUNK_SIZE):
            chunk = order[start : start + _CHUNK_SIZE]
            part = [requests[i] for i in chunk]
            embedded = embed_all(encoder, part, processes, on_progress, autocast, with_readings=with_readings)
            rows[torch.tensor(chunk, device=rows.device)] = embedded.to(rows.dtype)  # (n, D)
        return rows
    parallel = ParallelEncoder(encoder, processes, autocast)
    read, combine = encoder.readings(requests) if with_readings else Encoder.readings(encoder, requests)
    partition = parallel.partition(read)
    numbers = partition.numbers[processes.rank]

    def advance(*batches: ForwardBatch) -> None:
        if on_progress is not None:
            on_progress(sum(batch.num_texts_of(len(requests)) for batch in batches))

    pieces = parallel.run(partition.batches, numbers, on_run=advance)
    reshard(encoder)
    elsewhere = set(range(len(partition.batches))) - set(numbers)
    advance(*(partition.batches[number] for number in elsewhere))
    return combine(parallel.gather(pieces, partition))
