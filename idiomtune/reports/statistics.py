"""Statistics of differences between models: resamples, intervals, a paired test."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = Sequence[float] | Array
Clusters = Sequence[Hashable] | None
RESAMPLES = 10_000
MIN_ITEMS = 6  # queries, or clusters of them: fewer give no interval
_BATCH = 1_000  # resamples in memory at a time
_ROUNDING = 1e-28  # of a variance, as a share of the squared mean


@lru_cache(maxsize=256)  # a group that several are compared with is resampled once
def resample(
    statistic: str,
    values: tuple[float, ...],
    gold: tuple[float, ...],
    clusters: tuple[Hashable, ...] | None = None,
) -> Array:
    """A statistic of each of 1,000 bootstrap resamples: (R,), the same at every call.

    Args:
        statistic: by its name in :data:`STATISTICS`.
        values: (N,), an item's value or prediction.
        gold: (N,), what is predicted; unused by a mean.
        clusters: (N,), which items belong together (queries of one idiom, say): then whole clusters are
            drawn, because items of one cluster are alike. By default each item is drawn by itself.

    Returns:
        NaN for a resample in which the statistic has no value.
    """
    members = _numbers(clusters, len(values))
    drawn = next(_draws(members.max() + 1))
    cells = drawn + np.arange(len(drawn))[:, None] * drawn.shape[1]
    counts = np.bincount(cells.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return _weight(statistic, values, gold, counts[:, members].astype(float))


def statistic_of(statistic: str, values: Values, gold: Values = ()) -> float:
    """A statistic of the items themselves; NaN if it has no value."""
    return float(_weight(statistic, values, gold, np.ones((1, len(values))))[0])


def _weight(statistic: str, values: Values, gold: Values, weights: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return STATISTICS[statistic](np.asarray(values, float), np.asarray(gold, float), weights)


def interval(values: Array) -> tuple[float, float] | None:
    """95% interval of a bootstrap distribution; None if a resample has no value."""
    if not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high


def mean_interval(differences: Values, clusters: Clusters = None) -> tuple[float, float]:
    """95% bootstrap interval (percentiles) of a mean of paired differences; args as of :func:`resample`."""
    members = _numbers(clusters, len(differences))
    sums, sizes = np.bincount(members, weights=differences), np.bincount(members)
    means = [sums[drawn].sum(1) / sizes[drawn].sum(1) for drawn in _draws(len(sums))]
    return interval(np.concatenate(means)) or (np.nan, np.nan)


def permutation_p(differences: Values, clusters: Clusters = None) -> float:
    """Two-sided p of a paired permutation test: how often would chance make the mean that far from 0?

    If the two models were alike, either sign of a difference would be as likely. All 2^Q choices of signs
    are counted if they are few, else 9,999 drawn ones (seeded) and the observed one. By hand, since importing
    `scipy.stats` takes longer than a report.

    Args:
        differences: (Q,), one an item.
        clusters: (Q,), as :func:`resample` takes them: signs are those of whole clusters.
    """
    sums = np.bincount(_numbers(clusters, len(differences)), weights=differences)
    sums = sums[sums != 0]  # whatever its sign, it changes nothing
    if len(sums) < 2:
        return 1.0
    observed = abs(sums.sum()) * (1 - 1e-12)  # sums in another order differ by rounding
    if 2 ** len(sums) < RESAMPLES:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(sums))))
        return float((np.abs(signs @ sums) >= observed).mean())
    rng, reached, rest = np.random.default_rng(0), 1, RESAMPLES - 1
    while rest:
        signs = rng.integers(0, 2, (min(_BATCH, rest), len(sums)), dtype=np.int8) * 2.0 - 1.0
        reached += int((np.abs(signs @ sums) >= observed).sum())
        rest -= len(signs)
    return reached / RESAMPLES


def _numbers(clusters: Clusters, num_items: int) -> NDArray[np.intp]:
    """Each item's cluster as a number (N,), in the order in which they first occur."""
    if clusters is None:
        return np.arange(num_items)
    numbers: NDArray[np.intp] = pd.factorize(pd.Series(clusters, dtype=object))[0]
    return numbers


def _draws(num_units: int) -> Iterator[NDArray[np.int64]]:
    """The units that each resample draws, in batches (R', U): the same at every call."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES // _BATCH):
        yield rng.integers(0, num_units, (_BATCH, num_units))


# Each takes values (N,), gold (N,) and weights (R, N), how often a resample has each item, and gives (R,).


def _mean(values: Array, _gold: Array, weights: Array) -> Array:
    means: Array = (weights @ values) / weights.sum(1)
    return means


def _spearman(predicted: Array, gold: Array, weights: Array) -> Array:
    """Equal to ranking each resample by itself, but values are sorted once for all of them."""
    return _correlation(_ranks(predicted, weights), _ranks(gold, weights), weights)


def _correlation(x: Array, y: Array, weights: Array) -> Array:
    """Pearson's; x and y may differ between resamples, (R, N). NaN if one has no differences but rounding."""
    shares = weights / weights.sum(1, keepdims=True)
    means = [(shares * values).sum(1, keepdims=True) for values in (x, y)]
    x, y = x - means[0], y - means[1]
    of_x, of_y = (
        np.where(spread > _ROUNDING * mean[:, 0] ** 2, spread, np.nan)
        for spread, mean in zip(((shares * x * x).sum(1), (shares * y * y).sum(1)), means, strict=True)
    )
    return np.asarray((shares * x * y).sum(1) / np.sqrt(of_x * of_y))


def _macro_f1(predicted: Array, gold: Array, weights: Array) -> Array:
    """The mean of both classes' F1; of a class that is neither predicted nor there it is 0."""
    means = np.zeros(len(weights))
    for label in (0, 1):
        predicted_so, is_so = predicted == label, gold == label
        agreed, counted = weights @ (predicted_so & is_so), weights @ (predicted_so.astype(float) + is_so)
        means += agreed / np.maximum(counted, 1)
    return means


def _ranks(values: Array, weights: Array) -> Array:
    """Mean rank of each item in each resample (R, N); without meaning if it was not drawn."""
    _, kind = np.unique(values, return_inverse=True)  # which distinct value each item has: (N,)
    order = np.argsort(kind, kind="stable")
    starts = np.flatnonzero(np.diff(kind[order], prepend=-1))
    ties = np.add.reduceat(weights[:, order], starts, axis=1)  # how often each value was drawn: (R, kinds)
    ranks: Array = ties.cumsum(1) - (ties - 1) / 2
    return ranks[:, kind]


STATISTICS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "mean": _mean,
    "spearman": _spearman,
    "pearson": _correlation,
    "macro_f1": _macro_f1,
}
