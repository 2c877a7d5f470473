"""Embeddings trained towards goals: the objective of `idiomtune learn`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cosine_similarity

from idiomtune.objectives import Batch, ObjectiveLoss
from idiomtune.objectives.base import BaseObjective
from idiomtune.requests import EmbeddingRequest


class GoalObjective(BaseObjective):
    """1 - the weighted mean cosine of embeddings with their goals.

    An anchor is a text with all of its requests, which share one forward pass.

    Args:
        requests: N of them.
        goals: (N, D), the goal of each request.
        batch_size: texts of an optimizer step.
        weights: (N,), of the requests in the mean; None: all the same.

    >>> import torch
    >>> requests = [EmbeddingRequest(text) for text in "abc"]
    >>> objective = GoalObjective(requests, torch.eye(3), batch_size=3, seed=0)
    >>> batch = objective.batch(0, [0, 1, 2])
    >>> assert objective.loss(torch.eye(3), batch).loss == 0
    """

    def __init__(
        self,
        requests: Sequence[EmbeddingRequest],
        goals: Tensor,
        *,
        batch_size: int,
        seed: int,
        weights: Tensor | None = None,
    ) -> None:
        rows: dict[str, list[int]] = {}
        for row, request in enumerate(requests):
            rows.setdefault(request.text, []).append(row)
        self._requests, self._goals, self._rows = requests, goals, rows
        self._texts = list(rows)
        self._weights = goals.new_ones(len(goals)) if weights is None else weights.to(goals)
        super().__init__(len(rows), batch_size=batch_size, seed=seed)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002  epochs have the same batches
        """The requests of these texts, with the numbers of their goals."""
        texts = [self._texts[anchor] for anchor in anchors]
        rows = [row for text in texts for row in self._rows[text]]
        return Batch([self._requests[row] for row in rows], texts, rows)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """1 - the weighted mean cosine of embeddings (R, D) with their goals."""
        weights = self._weights[batch.targets]
        cosines = cosine_similarity(embeddings.float(), self._goals[batch.targets])
        return ObjectiveLoss(1 - (weights * cosines).sum() / weights.sum())
