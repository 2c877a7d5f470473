"""Any objective's loss on embeddings and their leading dimensions, so that embeddings can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from train.objectives import Batch, Mean, Objective, ObjectiveLoss


def matryoshka_loss(
    objective: Objective,
    embeddings: Tensor,
    batch: Batch,
    dimensions: Sequence[int],
    weights: Sequence[float] | None = None,
) -> ObjectiveLoss:
    """The weighted mean of the objective's loss over the full embeddings and their first dimensions.

        L = sum over n of  w_n L(embeddings[:, :n])  /  sum over n of  w_n,     n in D, *dimensions

    Args:
        embeddings: (R, D), row i for `batch.requests[i]`.
        dimensions: each less than D; none leaves the objective's own loss.
        weights: of the full embeddings, then of each of the dimensions; None = equal.

    Returns:
        The counts and means of the full embeddings, and the loss at each of the dimensions.

    References:
        Kusupati et al. 2022 (arXiv 2205.13147). sentence-transformers' `MatryoshkaLoss` is the sum of which
        this is the mean.
    """
    full = objective.loss(embeddings, batch)
    if not dimensions:
        return full
    first, *others = weights or [1.0] * (1 + len(dimensions))
    loss, is_empty, means = first * full.loss, full.is_empty, dict(full.means)
    for dimension, weight in zip(dimensions, others, strict=True):
        part = objective.loss(embeddings[:, :dimension], batch)
        loss = loss + weight * part.loss
        is_empty = is_empty and part.is_empty
        means[f"loss/dim={dimension}"] = Mean(part.loss.item(), len(batch.anchors))
    return replace(full, loss=loss / (first + sum(others)), is_empty=is_empty, means=means)
