"""An encoder whose weights stay as they are: what was embedded once needs no second pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from train.encoder import Encoder
from train.prompts import Request


class FrozenEncoder:
    """Embeds by an encoder that is not trained, in evaluation mode, each request once in a run.

    Args:
        encoder: its parameters require no gradient any more.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder.requires_grad_(False)
        self._numbers: dict[Request, int] = {}
        self._embeddings = torch.zeros(0, encoder.dimension, device=encoder.device)

    def __call__(
        self, requests: Sequence[Request], on_progress: Callable[[int], None] | None = None
    ) -> Tensor:
        """(R, D), row i for request i, without a graph; see :meth:`train.encoder.Encoder.forward`."""
        new = list(dict.fromkeys(r for r in requests if r not in self._numbers))
        if new:
            self._encoder.eval()
            with torch.no_grad():
                embedded = self._encoder(new, on_progress)
            self._numbers |= {r: len(self._numbers) + i for i, r in enumerate(new)}
            self._embeddings = torch.cat([self._embeddings, embedded.to(self._embeddings.dtype)])
        rows = torch.tensor([self._numbers[r] for r in requests], dtype=torch.long)
        return self._embeddings[rows.to(self._embeddings.device)]
