"""Embedding a step's requests in training, and backpropagating the loss to the encoder.

With gradient caching (Gao et al. 2021, arXiv 2101.06983) the first forward pass keeps no graph; once its
gradient is known, each forward batch is run again with the same dropout. So memory is that of one forward
batch, however many anchors a batch has. With several processes each runs its own forward batches, see
:mod:`idiomtune.encoder.parallel`; :class:`~idiomtune.training.step.Trainer` sums their gradients once a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import AutocastKwargs
from torch import Tensor

from idiomtune.encoder.parallel import gather, run_batches
from idiomtune.encoder.sharding import is_sharded
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.io.processes import Processes
from idiomtune.requests import EmbeddingRequest

_MEANINGS = 2**31  # of the random numbers that are drawn for meanings, not for a forward batch


def seed_everything(*numbers: int) -> None:
    """Seed the next random draws (dropout) with these numbers."""
    number = int(np.random.SeedSequence(list(numbers)).generate_state(1)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # the same, without the traceback that torch keeps for each accelerator that may come
        torch.default_generator.manual_seed(number)


@dataclass(frozen=True)
class Embedded:
    """The embeddings of a micro-step's requests.

    Attributes:
        rows: (R, D), row i for request i.
        num_texts: texts that went through the encoder for them, in all processes.
        backward: backpropagates a loss of the rows to all parameters that it depends on; call it once.
    """

    rows: Tensor
    num_texts: int
    backward: Callable[[Tensor], None]


@dataclass(eq=False)
class TrainableEmbedder:
    """Embeds with an encoder that is trained.

    The random numbers of a forward batch are a function of the run's seed, the step and the batch, so neither
    gradient caching nor the number of processes changes what dropout draws.

    Args:
        accelerator: for autocast and the gradient scaler.
        seed: of the run.
        caching: keep no graph, and run each forward batch again for its gradient.
        autocast: compute in the run's precision; else in that of the weights.
    """

    encoder: GlossaryEncoder
    accelerator: Accelerator
    processes: Processes
    seed: int
    caching: bool = False
    autocast: bool = True

    def __post_init__(self) -> None:
        # Autocast would keep the cast weights of every block until the last batch has run.
        self._autocast = AutocastKwargs(enabled=self.autocast, cache_enabled=not is_sharded(self.encoder))

    def __call__(self, requests: Sequence[EmbeddingRequest], step: int, micro: int = 0) -> Embedded:
        """Embed the R requests of a micro-step.

        Args:
            step: the optimizer step; with the micro-step, it seeds dropout.
            micro: number of the micro-step in its step.
        """
        none = torch.zeros(0, self.encoder.dimension, device=self.encoder.device)
        if not requests:  # a step that trains an objective's modules alone
            seed_everything(self.seed, step, micro)
            return Embedded(none, 0, self.accelerator.backward)

        def seed(batch: int) -> None:
            seed_everything(self.seed, step, micro, 1 + batch)

        partition = self.encoder.partition(self._drop_meanings(requests, step, micro), self.processes)
        batches, of_rank = partition.batches, partition.numbers[self.processes.rank]

        def run(numbers: Sequence[int]) -> list[Tensor]:
            with self.accelerator.autocast(self._autocast):  # each weight is cast once for all batches
                return run_batches(self.encoder.embed, batches, numbers, seed)  # (n, D) each

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.caching):
            pieces = run(of_rank)
            rows = gather(pieces, partition, self.processes, none)  # (R, D)
        num_texts = sum(batch.num_texts for batch in batches)
        seed_everything(self.seed, step, micro)  # for what the objective's own modules draw
        if self.processes.count == 1 and not self.caching:
            return Embedded(rows, num_texts, self.accelerator.backward)
        leaf = rows.detach().requires_grad_()

        def backward(loss: Tensor) -> None:
            self.accelerator.backward(loss)
            assert leaf.grad is not None
            for position, number in enumerate(of_rank):
                # With caching each batch is run again, one at a time.
                piece = run([number])[0] if self.caching else pieces[position]
                rows_of_batch = torch.tensor(batches[number].requests, dtype=torch.long)  # (n,)
                gradient = leaf.grad[rows_of_batch].to(piece.dtype)
                piece.backward(gradient)  # type: ignore[no-untyped-call]

        return Embedded(leaf, num_texts, backward)

    def _drop_meanings(
        self, requests: Sequence[EmbeddingRequest], step: int, micro: int
    ) -> Sequence[EmbeddingRequest]:
        """The same requests, some texts without meanings, so that the model also works without.

        Drawn per text, by seed and step: each process and a resumed run draw the same.
        """
        meanings = self.encoder.meanings
        if meanings is None or not meanings.dropout:
            return requests
        texts = list(dict.fromkeys(request.text for request in requests))
        draws = np.random.default_rng([self.seed, step, micro, _MEANINGS]).random(len(texts))
        bare = {text for text, draw in zip(texts, draws, strict=True) if draw < meanings.dropout}
        return [replace(r, with_meanings=False) if r.text in bare else r for r in requests]


class FrozenEmbedder:
    """Embeds with a frozen encoder in evaluation mode, each request once in a run.

    Args:
        encoder: is frozen here.
    """

    def __init__(self, encoder: GlossaryEncoder, accelerator: Accelerator, processes: Processes) -> None:
        self._encoder = encoder.requires_grad_(False)
        self._accelerator = accelerator
        self._processes = processes
        self._numbers: dict[EmbeddingRequest, int] = {}
        self._embeddings = torch.zeros(0, encoder.dimension, device=encoder.device)  # (requests so far, D)

    def __call__(
        self,
        requests: Sequence[EmbeddingRequest],
        step: int,  # noqa: ARG002  nothing is drawn
        micro: int = 0,  # noqa: ARG002
    ) -> Embedded:
        """As :class:`TrainableEmbedder` does, but the rows have no graph."""
        text_counts: list[int] = []
        if new := list(dict.fromkeys(r for r in requests if r not in self._numbers)):
            self._encoder.eval()
            options = {"processes": self._processes, "autocast": self._accelerator.autocast}
            # Without a gate, which is for scoring: it changes with each evaluation.
            with torch.no_grad():
                embedded = self._encoder(new, text_counts.append, **options, with_readings=False)
            self._numbers |= {r: len(self._numbers) + i for i, r in enumerate(new)}
            self._embeddings = torch.cat([self._embeddings, embedded.to(self._embeddings.dtype)])
        numbers = torch.tensor([self._numbers[r] for r in requests], dtype=torch.long)  # (R,)
        rows = self._embeddings[numbers.to(self._embeddings.device)]  # (R, D)
        return Embedded(rows, sum(text_counts), self._accelerator.backward)
