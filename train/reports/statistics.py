"""Is a difference between two models more than chance? Paired tests and intervals over what was scored."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, monte_carlo_test, permutation_test, wilcoxon

Array = NDArray[np.float64]
RESAMPLES = 10_000
_BATCH = 1_000  # resamples in memory at a time


@dataclass(frozen=True)
class Comparison:
    """Ours against theirs in one metric.

    Attributes:
        ours, theirs: means over items.
        low, high: 95% interval of the mean difference, by resampling items (seeded).
        greater, equal, smaller: items where ours is greater, equal or smaller.
        p_value: two-sided Wilcoxon signed-rank test; 1 where no item differs.
    """

    num_items: int
    ours: float
    theirs: float
    low: float
    high: float
    greater: int
    equal: int
    smaller: int
    p_value: float


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare values of the same items, in the same order.

    Args:
        ours, theirs: (Q,), one value an item.
    """
    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    difference = a - b
    low, high = mean_interval(difference)
    p_value = float(wilcoxon(difference).pvalue) if difference.any() else 1.0
    greater, equal, smaller = (int((np.sign(difference) == sign).sum()) for sign in (1, 0, -1))
    means = float(a.mean()), float(b.mean())
    return Comparison(len(a), *means, low, high, greater, equal, smaller, p_value)


def mean_interval(
    differences: Sequence[float] | Array, clusters: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """95% bootstrap interval (percentiles) of a mean of paired differences.

    Args:
        differences: (Q,), one an item.
        clusters: (Q,), which items belong together (queries of one idiom, say): then whole clusters are
            drawn, because items of one cluster are alike. By default each item is drawn by itself.

    Returns:
        Lower and upper end; seeded, so that the same values always give the same interval.
    """
    sums, sizes = _by_cluster(differences, clusters)
    if len(sums) == 1:  # scipy asks for two
        return float(sums[0] / sizes[0]), float(sums[0] / sizes[0])
    options: dict[str, Any] = {"paired": True, "vectorized": True, "batch": _BATCH, "method": "percentile"}
    rng = np.random.default_rng(0)
    found = bootstrap((sums, sizes), _mean, n_resamples=RESAMPLES, rng=rng, **options).confidence_interval
    return float(found.low), float(found.high)


def _mean(sums: Array, sizes: Array, axis: int) -> Any:
    return sums.sum(axis) / sizes.sum(axis)


def permutation_p(differences: Sequence[float] | Array, clusters: Sequence[Hashable] | None = None) -> float:
    """Two-sided p of a paired permutation test: how often would chance make the mean that far from 0?

    If the two models were alike, either sign of a difference would be as likely. All 2^Q choices of signs
    are counted where they are few, else 9,999 drawn ones (seeded) beside the one that was seen.

    Args:
        differences: (Q,), one an item.
        clusters: (Q,), as :func:`mean_interval` takes them: signs are those of whole clusters.
    """
    sums, _ = _by_cluster(differences, clusters)
    sums = sums[sums != 0]  # whatever its sign, it changes nothing
    if len(sums) < 2:
        return 1.0
    options: dict[str, Any] = {"alternative": "greater", "vectorized": True, "n_resamples": RESAMPLES - 1}
    if 2 ** len(sums) < RESAMPLES:
        return float(permutation_test((sums,), _distance, permutation_type="samples", **options).pvalue)
    rng = np.random.default_rng(0)

    def random_signs(size: tuple[int, ...]) -> Any:  # permutation_test would draw them ten times as slowly
        return sums * (rng.integers(0, 2, size, dtype=np.int8) * 2.0 - 1.0)

    return float(monte_carlo_test(sums, random_signs, _distance, batch=_BATCH, **options).pvalue)


def _distance(sums: Array, axis: int) -> Any:
    return np.abs(sums.sum(axis))


def _by_cluster(
    differences: Sequence[float] | Array, clusters: Sequence[Hashable] | None
) -> tuple[Array, Array]:
    """Each cluster's sum and size (C,); without clusters each item is one."""
    values = np.asarray(differences, dtype=float)
    if clusters is None:
        return values, np.ones(len(values))
    numbers: dict[Hashable, int] = {}
    member = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=int)
    return (
        np.bincount(member, weights=values, minlength=len(numbers)).astype(float),
        np.bincount(member, minlength=len(numbers)).astype(float),
    )


def resampled_counts(num_items: int, num_resamples: int) -> NDArray[np.int64]:
    """How often each of the items is drawn in each bootstrap resample: (R, N), the same at every call."""
    chances = np.full(num_items, 1 / num_items)
    return np.random.default_rng(0).multinomial(num_items, chances, size=num_resamples)


def resampled_spearman(
    predicted: Sequence[float] | Array, gold: Sequence[float] | Array, counts: NDArray[np.int64]
) -> Array:
    """Spearman's correlation of each bootstrap resample of pairs, ranked anew: (R,).

    Equal to ranking each resample by itself, which would sort as often as there are resamples: here values
    are sorted once, and ranks follow from how often each was drawn.

    Args:
        predicted, gold: (N,).
        counts: (R, N), from :func:`resampled_counts`.

    Returns:
        NaN for a resample in which all predictions, or all gold values, are equal.
    """
    weights = counts.astype(float)
    middle = (weights.sum(1, keepdims=True) + 1) / 2  # the mean of all ranks
    x = _resampled_ranks(predicted, weights) - middle
    y = _resampled_ranks(gold, weights) - middle
    spread = (weights * x * x).sum(1) * (weights * y * y).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (weights * x * y).sum(1) / np.sqrt(spread), np.nan)


def resampled_pearson(
    predicted: Sequence[float] | Array, gold: Sequence[float] | Array, counts: NDArray[np.int64]
) -> Array:
    """Pearson's correlation of each resample: (R,). Args, Returns: as :func:`resampled_spearman`."""
    weights = counts / counts.sum(1, keepdims=True)
    x, y = (np.asarray(values, dtype=float)[None] for values in (predicted, gold))
    x, y = (values - (weights * values).sum(1, keepdims=True) for values in (x, y))
    spread = (weights * x * x).sum(1) * (weights * y * y).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (weights * x * y).sum(1) / np.sqrt(spread), np.nan)


def resampled_roc_auc(
    predicted: Sequence[float] | Array, gold: Sequence[float] | Array, counts: NDArray[np.int64]
) -> Array:
    """The area under the ROC curve of each resample: (R,).

    Args:
        predicted: (N,).
        gold: (N,), 1 or 0.
        counts: (R, N), from :func:`resampled_counts`.

    Returns:
        NaN for a resample with one label.
    """
    weights = counts.astype(float)
    positive = weights * (np.asarray(gold) == 1)
    num_positive = positive.sum(1)
    above = (positive * _resampled_ranks(predicted, weights)).sum(1) - num_positive * (num_positive + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(above / (num_positive * (weights.sum(1) - num_positive)))


def resampled_average_precision(
    predicted: Sequence[float] | Array, gold: Sequence[float] | Array, counts: NDArray[np.int64]
) -> Array:
    """Average precision of each resample, equal predictions at one threshold: (R,).

    Args: as :func:`resampled_roc_auc`.

    Returns:
        NaN for a resample without positives.
    """
    _, kind = np.unique(-np.asarray(predicted, dtype=float), return_inverse=True)
    order = np.argsort(kind, kind="stable")
    starts = np.flatnonzero(np.diff(kind[order], prepend=-1))
    weights = counts[:, order].astype(float)
    gained = np.add.reduceat(weights * (np.asarray(gold) == 1)[order], starts, axis=1)
    found, of = gained.cumsum(1), np.add.reduceat(weights, starts, axis=1).cumsum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(of > 0, found / of, 0.0)
        return np.asarray((gained * precision).sum(1) / found[:, -1])


def resampled_macro_f1(
    predicted: Sequence[float] | Array, gold: Sequence[float] | Array, counts: NDArray[np.int64]
) -> Array:
    """The mean of both classes' F1 of each resample: (R,). `predicted` and `gold` (N,) are 1 or 0.

    A class that is neither predicted nor there has F1 0.
    """
    means = np.zeros(len(counts))
    for label in (0, 1):
        said, is_label = (np.asarray(values) == label for values in (predicted, gold))
        both, either = counts @ (said & is_label), counts @ (said.astype(int) + is_label)
        means += 2 * both / np.maximum(either, 1) / 2
    return means


# What a score over pairs (predicted, gold) can be.
STATISTICS = {
    "spearman": resampled_spearman,
    "pearson": resampled_pearson,
    "roc_auc": resampled_roc_auc,
    "average_precision": resampled_average_precision,
    "macro_f1": resampled_macro_f1,
}


def _resampled_ranks(values: Sequence[float] | Array, weights: Array) -> Array:
    """Mean rank of each item in each resample (R, N); of no meaning where it was not drawn."""
    _, kind = np.unique(np.asarray(values, dtype=float), return_inverse=True)
    order = np.argsort(kind, kind="stable")
    starts = np.flatnonzero(np.diff(kind[order], prepend=-1))
    ties = np.add.reduceat(weights[:, order], starts, axis=1)  # (R, kinds): how often each value was drawn
    ranks: Array = ties.cumsum(1) - (ties - 1) / 2
    return ranks[:, kind]


def interval(values: Array) -> tuple[float, float] | None:
    """95% interval of a bootstrap distribution; None where a resample has no value."""
    if not len(values) or not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high
