"""Metrics of pairs of sentences: the model's predictions against gold scores or labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

_ROUNDING = 1e-6  # of cosines of embeddings in float32


def cosines(first: Tensor, second: Tensor) -> list[float]:
    """The cosine of each pair of rows of two (N, D).

    Sentences that a model reads as the same text have a cosine of 1 up to rounding, which differs by kernel
    and device; they count as 1.
    """
    cosine = functional.cosine_similarity(first.double(), second.double(), dim=1)
    cosine[cosine > 1 - _ROUNDING] = 1.0
    values: list[float] = cosine.tolist()
    return values


def best_f1(predicted: Sequence[float], gold: Sequence[float]) -> tuple[float, float]:
    """The greatest F1 of the positive label over all thresholds, and its threshold.

    Args:
        predicted: (N,); those that are greater than the threshold count as positive.
        gold: (N,), 1 or 0, both of which occur.
    """
    positives, predictions, thresholds = _by_threshold(predicted, gold)
    return _best(2 * positives / (predictions + sum(gold)), thresholds)


def best_accuracy(predicted: Sequence[float], gold: Sequence[float]) -> tuple[float, float]:
    """The greatest accuracy over all thresholds, and its threshold. Args: as :func:`best_f1`."""
    positives, predictions, thresholds = _by_threshold(predicted, gold)
    right = positives + (len(gold) - sum(gold)) - (predictions - positives)
    return _best(right / len(gold), thresholds)


def _by_threshold(
    predicted: Sequence[float], gold: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """For each of T distinct predictions, the greatest first: positives at or above it, pairs, threshold.

    A threshold is halfway to the next smaller prediction; the last, just below the smallest. After all of
    them comes the greatest prediction itself as a threshold, which nothing is above: (T + 1,) each.
    """
    values, kind = np.unique(-np.asarray(predicted, dtype=float), return_inverse=True)
    predictions = np.bincount(kind).cumsum()
    positives = np.bincount(kind, weights=np.asarray(gold, dtype=float)).cumsum().astype(np.int64)
    just_below = np.nextafter(-values, -np.inf)
    halfway = np.append((-values[:-1] - values[1:]) / 2, just_below[-1])
    thresholds = np.minimum(halfway, just_below)  # halfway between neighbours is rounded to one of them
    return np.append(positives, 0), np.append(predictions, 0), np.append(thresholds, -values[0])


def _best(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> tuple[float, float]:
    """The first of equal ones: of the greatest threshold."""
    best = int(values.argmax())
    return float(values[best]), float(thresholds[best])
