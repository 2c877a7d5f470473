"""Cosines of pairs and their best thresholds: by hand, and against scikit-learn's metrics."""

import numpy as np
import pytest
import torch
from sklearn import metrics  # type: ignore[import-untyped]

from idiomtune.benchmarks.pairs import best_accuracy, best_f1, cosines


def test_by_hand() -> None:
    """Positives at 0.9 and 0.5, negatives at 0.7 and 0.1."""
    predicted, gold = [0.9, 0.7, 0.5, 0.1], [1.0, 0.0, 1.0, 0.0]
    f1, accuracy = best_f1(predicted, gold), best_accuracy(predicted, gold)
    assert f1 == pytest.approx((0.8, 0.3))  # all but the last: precision 2/3, recall 1
    assert accuracy == pytest.approx((0.75, 0.8))  # of equal ones, the greatest threshold
    nothing = best_accuracy([0.1, 0.9, 0.5], [1.0, 0.0, 0.0])
    assert nothing == pytest.approx((2 / 3, 0.9))  # above which there is nothing
    assert best_accuracy([0.5] * 3, [1.0, 0.0, 0.0]) == pytest.approx((2 / 3, 0.5))
    assert best_f1([0.5] * 3, [1.0, 0.0, 0.0])[1] < 0.5


@pytest.mark.parametrize("digits", [1, 8])
def test_equal_to_others(digits: int) -> None:
    """With many ties, and with none."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, 60)
    predicted = np.round(0.3 * gold + rng.normal(0, 0.3, 60), digits)
    p, g = predicted.tolist(), gold.astype(float).tolist()
    thresholds = [*predicted, predicted.min() - 1]
    for best, theirs in ((best_f1, metrics.f1_score), (best_accuracy, metrics.accuracy_score)):
        value, threshold = best(p, g)
        assert value == pytest.approx(max(theirs(gold, predicted > t) for t in thresholds))
        assert value == pytest.approx(theirs(gold, predicted > threshold))


def test_cosines_of_one_are_exact_and_others_are_not() -> None:
    x = torch.tensor([[3.0, 4.0], [1.0, 1e-9], [1.0, 0.0]])
    exact, rounded, other = cosines(x, torch.tensor([[0.3, 0.4], [1.0, 0.0], [1.0, 0.1]]))
    assert exact == rounded == 1.0
    assert other == pytest.approx(1 / 1.01**0.5)
    assert other < 1.0
    assert max(cosines(torch.eye(2), torch.eye(2).flip(0))) == 0.0
