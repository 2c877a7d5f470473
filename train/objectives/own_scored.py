"""A user's own scored pairs: cosines in the order of the scores, or equal to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CoSENTLoss
from train.data.own.store import Examples, Store
from train.objectives import Batch, ObjectiveLoss
from train.objectives.steps import in_shards, shuffled_steps
from train.requests import Request

GradedLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # (B, D), (B, D), (B,) → scalar


class ScoredPairsObjective:
    """Every row is a pair of texts with a score; both are embedded alike.

    Args:
        examples: of the form `scored`.
        loss: of a batch's two sides and scores.
        batch_size: pairs an optimizer step.
        seed: of the order of pairs.
        files: the data files that were read.
    """

    plain_requests: Sequence[Request] = ()
    idiom_sentences: Sequence[tuple[str, str]] = ()

    def __init__(
        self,
        examples: Examples,
        loss: GradedLoss,
        *,
        batch_size: int,
        seed: int,
        files: Sequence[Path] = (),
    ) -> None:
        self._examples = examples
        self._loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.files = list(files)
        self.modules = nn.Module()  # trains nothing beside the encoder

    def describe(self) -> str:
        """One line for the log."""
        scores = self._scores(range(len(self._examples)))
        return f"{len(scores)} pairs with scores from {scores.min():g} to {scores.max():g}"

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all pairs in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        steps = shuffled_steps(np.arange(len(self._examples)), self.batch_size, rng)
        return in_shards(steps, shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests of these pairs: all first texts, then all second ones."""
        store = self._examples.store
        firsts = self._examples.anchors[list(anchors)].tolist()
        requests = [own_request(store, text + side) for side in (0, 1) for text in firsts]
        scores = self._scores(anchors)
        is_level = isinstance(self._loss, CoSENTLoss) and scores.min() == scores.max()
        why = "a batch needs pairs of different scores: raise trainer.batch_size" if is_level else ""
        return Batch(requests, self._examples.names(anchors), torch.from_numpy(scores), empty_because=why)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the pairs' cosines and scores."""
        first, second = embeddings.chunk(2)
        loss = self._loss(first, second, batch.targets.to(embeddings.device))
        return ObjectiveLoss(loss, is_empty=bool(batch.empty_because))

    def _scores(self, rows: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return self._examples.store.scores[self._examples.rows[list(rows)]]


def own_request(store: Store, text: int) -> Request:
    """How text number `text` is embedded: by its span, where it has one."""
    span = store.span(text)
    return Request(store.read_text(text), span, pooling="sentence" if span is None else "span")
