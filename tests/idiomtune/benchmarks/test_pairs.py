"""Cosines of pairs."""

import pytest
import torch

from idiomtune.benchmarks.pairs import cosines


def test_cosines_of_one_are_exact_and_others_are_not() -> None:
    x = torch.tensor([[3.0, 4.0], [1.0, 1e-9], [1.0, 0.0]])
    exact, rounded, other = cosines(x, torch.tensor([[0.3, 0.4], [1.0, 0.0], [1.0, 0.1]]))
    assert exact == rounded == 1.0
    assert other == pytest.approx(1 / 1.01**0.5)
    assert other < 1.0
    assert max(cosines(torch.eye(2), torch.eye(2).flip(0))) == 0.0
