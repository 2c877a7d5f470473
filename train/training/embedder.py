"""A step's embeddings, and the way of the loss' gradient back to the encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import AutocastKwargs
from torch import Tensor

from train.distributed.processes import Processes
from train.distributed.sharding import is_sharded
from train.encoder.encoder import Encoder
from train.encoder.parallel import SharedEmbeddings
from train.requests import Request
from train.training.schedule import seed_everything


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
