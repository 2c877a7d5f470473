"""The losses of scored pairs against naive loops and sentence-transformers' own: values, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor, nn

from idiomloss import CoSENTLoss, CosineMSELoss

SCORES = [3.0, 0.5, 3.0, 5.0, 1.0, 0.5]  # some are equal


def sides(num_pairs: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, num_pairs, 8, dtype=torch.float64, generator=generator)
    return first.requires_grad_(), second.requires_grad_()


def cosines(first: Tensor, second: Tensor) -> list[Tensor]:
    return [a @ b / (a.norm() * b.norm()) for a, b in zip(first, second, strict=True)]


def naive_cosent(first: Tensor, second: Tensor, scores: list[float]) -> Tensor:
    alike = cosines(first, second)
    total = torch.ones((), dtype=torch.float64)
    for i, lower in enumerate(scores):
        for j, higher in enumerate(scores):
            if lower < higher:
                total = total + torch.exp((alike[i] - alike[j]) / 0.05)
    return total.log()


def naive_mse(first: Tensor, second: Tensor, scores: list[float]) -> Tensor:
    terms = [(c - s / 5) ** 2 for c, s in zip(cosines(first, second), scores, strict=True)]
    return torch.stack(terms).mean()


def assert_same(ours: Tensor, expected: Tensor, first: Tensor, second: Tensor) -> None:
    """Value, and gradient of both sides."""
    torch.testing.assert_close(ours, expected)
    gradients = torch.autograd.grad(ours, (first, second))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (first, second)))


@pytest.mark.parametrize(
    ("loss", "naive"), [(CoSENTLoss(0.05), naive_cosent), (CosineMSELoss(0, 5), naive_mse)]
)
def test_naive_loops(loss: nn.Module, naive: Callable[[Tensor, Tensor, list[float]], Tensor]) -> None:
    first, second = sides()
    assert_same(loss(first, second, torch.tensor(SCORES)), naive(first, second, SCORES), first, second)


class _Sides(nn.Module):
    """A model whose "texts" are their embeddings."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["rows"]}


@pytest.mark.parametrize(
    ("loss", "theirs", "scale"),
    [(CoSENTLoss(0.05), library.CoSENTLoss, 1.0), (CosineMSELoss(0, 5), library.CosineSimilarityLoss, 5.0)],
)
def test_sentence_transformers_losses(loss: nn.Module, theirs: Any, scale: float) -> None:
    """In float64 up to the differences that CoSENT puts in place of minus infinity."""
    first, second = sides()
    scores = torch.tensor(SCORES, dtype=torch.float64)
    expected = theirs(_Sides())([{"rows": first}, {"rows": second}], scores / scale)
    assert_same(loss(first, second, scores), expected, first, second)


def test_no_pair_is_in_order() -> None:
    """Of one pair, or equal scores, nothing is learnt: a loss of zero with a graph."""
    first, second = sides(2)
    loss = CoSENTLoss()(first, second, torch.ones(2))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, first)[0].abs().sum() == 0


def test_extreme_differences_stay_finite() -> None:
    first = torch.eye(2, requires_grad=True)
    loss = CoSENTLoss(1e-3)(first, torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.tensor([0.0, 1.0]))
    assert loss.item() == pytest.approx(2 / 1e-3)
    assert torch.autograd.grad(loss, first)[0].isfinite().all()


def test_options_out_of_range() -> None:
    for temperature in (0.0, -1.0):
        with pytest.raises(ValueError, match="temperature"):
            CoSENTLoss(temperature)
    with pytest.raises(ValueError, match="low"):
        CosineMSELoss(1, 1)
    half = CosineMSELoss(0, 2)(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1))
    assert half.item() == pytest.approx(0.25)
