"""Paired statistics, by hand and against scipy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap, pearsonr, permutation_test, spearmanr
from sklearn import metrics  # type: ignore[import-untyped]

from idiomtune.reports.statistics import (
    STATISTICS,
    interval,
    mean_interval,
    permutation_p,
    resample,
    statistic_of,
)

OF_PAIRS = [name for name in STATISTICS if name not in ("mean", "macro_f1")]  # the latter is of labels
OF_OTHERS: dict[str, Any] = {  # of predicted, gold
    "spearman": lambda p, g: spearmanr(p, g).statistic,
    "pearson": lambda p, g: pearsonr(p, g).statistic,
    "macro_f1": lambda p, g: metrics.f1_score(g, p, average="macro", labels=[0, 1], zero_division=0),
}


def test_permutation_p_counts_all_signs() -> None:
    assert permutation_p([1, 2, 3, 4]) == 2 / 16  # |±1 ± 2 ± 3 ± 4| >= 10
    assert permutation_p([1, 2, -3, 4]) == 10 / 16  # >= 4
    assert permutation_p([0.1, 0.2, 0.3, 0, 0]) == 2 / 8  # rounding makes no sum smaller than itself
    assert permutation_p([0.0, 0.0]) == permutation_p([1, -1] * 10) == 1.0  # drawn signs: never more than 1
    assert permutation_p([1] * 10) == 2 / 2**10


def test_whole_clusters_are_drawn_and_change_their_sign() -> None:
    """Three idioms whose sums are 3, 3, 3: all of one sign in 2 of 8 cases."""
    differences, idioms = [1, 2, 3, 1, 1, 1], ["a", "a", "b", "c", "c", "c"]
    assert permutation_p(differences, idioms) == 2 / 8
    # From the third idiom alone, 3 of 3, to the second alone, 3 of 1.
    assert mean_interval(differences, idioms) == (1.0, 3.0)
    assert mean_interval(differences, range(6)) == mean_interval(differences)
    assert mean_interval([1, 2, 3], ["a", "a", "a"]) == (2.0, 2.0)  # a single one decides nothing
    assert permutation_p([1, 2, 3], ["a", "a", "a"]) == permutation_p([0.0, 2.0]) == 1.0


def test_drawn_signs_agree_with_scipy() -> None:
    values = np.random.default_rng(1).normal(0.2, 1.0, 120)
    options: dict[str, Any] = {"permutation_type": "samples", "n_resamples": 9_999}
    theirs = permutation_test((values,), np.mean, **options, rng=np.random.default_rng(0))
    assert permutation_p(values) == pytest.approx(theirs.pvalue, abs=0.015)
    assert permutation_p(np.abs(values)) == 1 / 10_000  # never 0


def test_interval_of_a_mean_is_scipys() -> None:
    """With the same draws, which a mean of pairs has a tenth of."""
    values = np.random.default_rng(2).normal(0.3, 1.0, 80)
    few = interval(resample("mean", tuple(values), ()))
    for num, ours in ((10_000, mean_interval(values)), (1_000, few)):
        options: dict[str, Any] = {"method": "percentile", "n_resamples": num, "batch": 1_000}
        theirs = bootstrap((values,), np.mean, **options, rng=np.random.default_rng(0)).confidence_interval
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("name", [*OF_PAIRS, "macro_f1"])
def test_statistics_of_resamples_are_those_of_each_alone(name: str) -> None:
    """As other libraries compute them, with ties, on the pairs that a resample draws."""
    rng = np.random.default_rng(5)
    gold = rng.normal(0, 1, 40) if name == "pearson" else rng.integers(0, 2, 40).astype(float)
    predicted = np.round(gold + rng.normal(0, 1, 40), 1)
    if name == "macro_f1":  # few, so that some resamples have no item of a class
        predicted, gold = rng.integers(0, 2, (2, 4)).astype(float)
    counts = rng.multinomial(len(gold), np.full(len(gold), 1 / len(gold)), size=60)
    with np.errstate(invalid="ignore", divide="ignore"):
        ours = STATISTICS[name](predicted, gold, counts.astype(float))
    for value, times in zip(ours, counts, strict=True):
        drawn = np.repeat(np.arange(len(gold)), times)
        assert value == pytest.approx(OF_OTHERS[name](predicted[drawn], gold[drawn]), abs=1e-12)
    low, high = interval(resample(name, tuple(predicted), tuple(gold))) or (np.nan, np.nan)
    assert name == "macro_f1" or low < statistic_of(name, predicted, gold) < high


def test_there_is_no_statistic_without_differences() -> None:
    for name in OF_PAIRS:
        assert np.isnan(resample(name, (1.0, 2.0, 3.0), (0.0, 0.0, 0.0))).all()
    assert interval(np.array([1.0, np.nan])) is None
    for name, num in itertools.product(("spearman", "pearson"), range(1, 40)):
        varied = [number + 0.1 for number in range(num)]  # of some numbers of items the mean is rounded
        for predicted, gold in ((varied, [0.3] * num), ([0.7] * num, varied)):
            assert np.isnan(statistic_of(name, predicted, gold))
    assert statistic_of("pearson", [0.9999998, 0.9999999, 1.0], [1, 2, 3]) == pytest.approx(1.0)
