"""Paired statistics, by hand and against scipy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import bootstrap, permutation_test, spearmanr

from train.benchmarks import pairs
from train.benchmarks.admire.scoring import macro_f1
from train.reports.statistics import (
    STATISTICS,
    interval,
    mean_interval,
    permutation_p,
    resampled_counts,
    resampled_spearman,
)

OF_NUMBERS = [name for name in STATISTICS if name != "macro_f1"]  # which is of labels


def test_permutation_p_counts_all_signs() -> None:
    """|±1 ± 2 ± 3 ± 4| >= 10 for 2 of 16 signs; >= 4 (1 + 2 - 3 + 4) for 10 of 16."""
    assert permutation_p([1, 2, 3, 4]) == 2 / 16
    reached = sum(abs(np.dot(s, (1, 2, 3, 4))) >= 4 for s in product((-1, 1), repeat=4))
    assert permutation_p([1, 2, -3, 4]) == reached / 16
    assert permutation_p([0.1, 0.2, 0.3, 0, 0]) == 2 / 8  # rounding makes no sum smaller than itself
    assert permutation_p([0.0, 0.0]) == 1.0


def test_whole_clusters_change_their_sign() -> None:
    """Three idioms whose sums are 3, 3, 3: all of one sign in 2 of 8 cases."""
    differences, idioms = [1, 2, 3, 1, 1, 1], ["a", "a", "b", "c", "c", "c"]
    assert permutation_p(differences, idioms) == 2 / 8
    low, high = mean_interval(differences, idioms)
    assert (low, high) == (1.0, 3.0)  # from the third idiom alone, 3 of 3, to the second alone, 3 of 1
    assert mean_interval(differences, range(6)) == mean_interval(differences)


def test_a_single_cluster_decides_nothing() -> None:
    assert mean_interval([1, 2, 3], ["a", "a", "a"]) == (2.0, 2.0)
    assert permutation_p([1, 2, 3], ["a", "a", "a"]) == permutation_p([0.0, 2.0]) == 1.0


def test_drawn_signs_agree_with_scipy() -> None:
    values = np.random.default_rng(1).normal(0.2, 1.0, 120)
    theirs = permutation_test(
        *((values,), np.mean), permutation_type="samples", n_resamples=9_999, rng=np.random.default_rng(0)
    )
    assert permutation_p(values) == pytest.approx(theirs.pvalue, abs=0.015)
    assert permutation_p(np.abs(values)) == 1 / 10_000  # never 0


def test_interval_of_a_mean_agrees_with_scipy_and_covers_the_truth() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0.3, 1.0, 80)
    theirs = bootstrap(
        *((values,), np.mean), method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert mean_interval(values) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    held = 0
    for _ in range(100):
        low, high = mean_interval(rng.normal(0.3, 1.0, 40))
        held += low <= 0.3 <= high
    assert 85 <= held <= 100


def test_resampled_correlations_are_spearmans() -> None:
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 6, 50).astype(float)  # ties
    predicted = np.round(gold + rng.normal(0, 2, 50))
    counts = resampled_counts(50, 40)
    ours = resampled_spearman(predicted, gold, counts)
    for value, times in zip(ours, counts, strict=True):
        drawn = np.repeat(np.arange(50), times)
        assert value == pytest.approx(spearmanr(predicted[drawn], gold[drawn]).statistic)
    low, high = interval(ours) or (0, 0)
    assert low < spearmanr(predicted, gold).statistic < high


def test_no_correlation_without_differences() -> None:
    values = resampled_spearman([1, 1, 1], [1, 2, 3], np.ones((2, 3), dtype=np.int64))
    assert np.isnan(values).all()
    assert interval(values) is None


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_statistics_of_resamples_are_those_of_each_alone(name: str) -> None:
    """As the benchmarks compute them, with ties, on the pairs that a resample draws."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 40).astype(float)
    gold = rng.normal(0, 1, 40) if name == "pearson" else labels
    predicted = np.round(gold + rng.normal(0, 1, 40), 1)
    counts = resampled_counts(40, 30)
    ours = STATISTICS[name](predicted, gold, counts)
    for value, times in zip(ours, counts, strict=True):
        drawn = np.repeat(np.arange(40), times)
        alone = getattr(pairs, name)(predicted[drawn].tolist(), gold[drawn].tolist())
        assert value == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_no_statistic_of_one_label(name: str) -> None:
    values = STATISTICS[name]([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], np.ones((2, 3), dtype=np.int64))
    assert np.isnan(values).all()


def test_macro_f1_of_resamples_is_that_of_each_alone() -> None:
    """Also where a class was not drawn."""
    rng = np.random.default_rng(5)
    predicted, gold = rng.integers(0, 2, (2, 4))
    counts = resampled_counts(4, 60)
    ours = STATISTICS["macro_f1"](predicted, gold, counts)
    for value, times in zip(ours, counts, strict=True):
        drawn = np.repeat(np.arange(4), times)
        alone = macro_f1(list(zip(predicted[drawn].tolist(), gold[drawn].tolist(), strict=True)))
        assert value == pytest.approx(alone, abs=1e-12)
