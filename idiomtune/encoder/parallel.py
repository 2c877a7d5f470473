"""Forward batches divided among the processes of a launch, and their embeddings gathered.

A loss needs the embeddings of the whole batch, but not the encoder's graph of the whole batch. So each
process embeds its part of the texts, all of them get all embeddings and compute the same loss, and each
backpropagates the loss's gradient with respect to the embeddings through its own forward batches; the
encoder's gradients are then summed. That is exact for any loss on embeddings, mined triplets and masked
candidates included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from idiomtune.encoder.forward import ForwardBatch, in_request_order
from idiomtune.io.processes import Processes


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


def run_batches(
    embed: Callable[[ForwardBatch], Tensor],
    batches: Sequence[ForwardBatch],
    numbers: Sequence[int],
    seed: Callable[[int], None] | None = None,
    on_run: Callable[[ForwardBatch], None] | None = None,
) -> list[Tensor]:
    """Embed some of the batches; (n, D) for each, n its number of requests.

    Args:
        embed: of an encoder.
        numbers: which batches.
        seed: called with a batch's number before it is run.
        on_run: called with each batch after it was run.
    """
    pieces = []
    for number in numbers:
        if seed is not None:
            seed(number)
        batch = batches[number]
        pieces.append(embed(batch)[: len(batch.requests)])
        if on_run is not None:
            on_run(batch)
    return pieces


def gather(pieces: Sequence[Tensor], partition: Partition, processes: Processes, none: Tensor) -> Tensor:
    """(R, D), row i for request i, in all processes; with a graph if there is only one process.

    Args:
        pieces: (n, D) each, from :func:`run_batches`, of the batches that this process ran.
        none: (0, D), float32: a process may have no piece at all.
    """
    requests = [
        [i for number in numbers for i in partition.batches[number].requests] for numbers in partition.numbers
    ]
    order = [i for process_requests in requests for i in process_requests]
    if processes.count == 1:
        return in_request_order(torch.cat(list(pieces)), order)
    rows = torch.cat([piece.detach().float() for piece in (none, *pieces)])
    lengths = [len(process_requests) for process_requests in requests]
    return in_request_order(processes.gather(rows, lengths), order)
