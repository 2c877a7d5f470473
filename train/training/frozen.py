"""An encoder whose weights stay as they are: what was embedded once needs no second pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from accelerate import Accelerator
from torch import Tensor

from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.parallel import embed_all
from train.objectives import Batch
from train.requests import Request


class FrozenEmbeddings:
    """Embeds by an encoder that is not trained, in evaluation mode, each request once in a run.

    Stands where :class:`~train.encoder.parallel.TrainedEmbeddings` does.

    Args:
        encoder: its parameters require no gradient any more.
    """

    def __init__(self, encoder: Encoder, accelerator: Accelerator, processes: Processes) -> None:
        self._encoder = encoder.requires_grad_(False)
        self._accelerator = accelerator
        self._processes = processes
        self._numbers: dict[Request, int] = {}
        self._embeddings = torch.zeros(0, encoder.dimension, device=encoder.device)

    def __call__(
        self,
        requests: Sequence[Request],
        step: int,  # noqa: ARG002  nothing is drawn
        micro: int = 0,  # noqa: ARG002
        on_progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """(R, D), row i for request i, without a graph."""
        new = list(dict.fromkeys(r for r in requests if r not in self._numbers))
        if new:
            self._encoder.eval()
            embedded = embed_all(self._encoder, new, self._processes, on_progress, self._accelerator.autocast)
            self._numbers |= {r: len(self._numbers) + i for i, r in enumerate(new)}
            self._embeddings = torch.cat([self._embeddings, embedded.to(self._embeddings.dtype)])
        rows = torch.tensor([self._numbers[r] for r in requests], dtype=torch.long)
        return self._embeddings[rows.to(self._embeddings.device)]

    def catch_up(self, batches: Iterable[Batch]) -> None:
        """Embed what a run that goes on had embedded before, in the same passes.

        In another company a text's embedding differs by rounding, and so would the rest of the run.
        """
        for batch in batches:
            self(batch.requests, 0)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to the parameters of whatever computed it from the embeddings."""
        self._accelerator.backward(loss)
