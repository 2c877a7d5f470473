"""Losses on cosines of pairs, graded and distilled, against loops and sentence-transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor, nn

from idiomloss import (
    CoSENTLoss,
    CosineMSELoss,
    cosine_similarity,
    distillation_loss,
    paired_cosine_similarity,
    relational_distillation_loss,
)
from tests.idiomloss.harness import assert_nothing_learnt, assert_same, randn

SCORES = [3.0, 0.5, 3.0, 5.0, 1.0, 0.5]  # some are equal


def cosine(a: Tensor, b: Tensor) -> Tensor:
    similarity: Tensor = a @ b / (a.norm() * b.norm())
    return similarity


def naive_cosent(first: Tensor, second: Tensor) -> Tensor:
    alike = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    pairs = [(i, j) for i, low in enumerate(SCORES) for j, high in enumerate(SCORES) if low < high]
    total = torch.ones((), dtype=torch.float64)
    for i, j in pairs:
        total = total + torch.exp((alike[i] - alike[j]) / 0.05)
    return total.log()


def naive_mse(first: Tensor, second: Tensor) -> Tensor:
    triples = zip(first, second, SCORES, strict=True)
    return torch.stack([(cosine(a, b) - score / 5) ** 2 for a, b, score in triples]).mean()


class Sides(nn.Module):
    """A model whose "texts" are their embeddings."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["rows"]}


@pytest.mark.parametrize(
    ("loss", "naive", "theirs", "scale"),
    [
        (CoSENTLoss(0.05), naive_cosent, library.CoSENTLoss, 1.0),
        (CosineMSELoss(0, 5), naive_mse, library.CosineSimilarityLoss, 5.0),
    ],
)
def test_graded_losses_are_the_loops_and_the_librarys(
    loss: nn.Module, naive: Callable[[Tensor, Tensor], Tensor], theirs: Any, scale: float
) -> None:
    first, second = randn(6, 8), randn(6, 8, seed=1)
    scores = torch.tensor(SCORES, dtype=torch.float64)
    ours = loss(first, second, scores)
    assert_same(ours, naive(first, second), first, second)
    expected = theirs(Sides())([{"rows": first}, {"rows": second}], scores / scale)
    assert_same(loss(first, second, scores), expected, first, second)


def test_graded_losses_at_their_edges() -> None:
    first, second = randn(2, 8), randn(2, 8, seed=1)
    assert_nothing_learnt(CoSENTLoss()(first, second, torch.ones(2)), first)  # no pair is in order
    first = torch.eye(2, requires_grad=True)
    loss = CoSENTLoss(1e-3)(first, torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.tensor([0.0, 1.0]))
    assert loss.item() == pytest.approx(2 / 1e-3)
    assert torch.autograd.grad(loss, first)[0].isfinite().all()
    half = CosineMSELoss(0, 2)(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1))
    assert half.item() == pytest.approx(0.25)


def test_distillation_is_the_loop() -> None:
    for rows in (1, 7):
        student, teacher = randn(rows, 5), randn(rows, 5, seed=1).detach()
        expected = torch.stack([1 - cosine(s, t) for s, t in zip(student, teacher, strict=True)])
        assert_same(distillation_loss(student, teacher), expected.mean(), student)
        assert torch.autograd.gradcheck(lambda x, t=teacher: distillation_loss(x, t), (student,))
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])  # only directions count
    assert distillation_loss(3 * teacher, teacher).item() == pytest.approx(0, abs=1e-6)
    assert distillation_loss(-teacher, teacher).item() == pytest.approx(2)


def test_relations_are_those_of_a_loop_over_pairs() -> None:
    student, teacher = randn(5, 3), randn(5, 8, seed=1).detach()
    pairs = [(i, j) for i in range(5) for j in range(i)]
    terms = [(cosine(student[i], student[j]) - cosine(teacher[i], teacher[j])) ** 2 for i, j in pairs]
    assert_same(relational_distillation_loss(student, teacher), torch.stack(terms).mean(), student)
    assert torch.autograd.gradcheck(lambda x: relational_distillation_loss(x, teacher), (student,))
    turned = torch.tensor([[0.0, -2.0], [3.0, 0.0]])  # only relations count
    assert relational_distillation_loss(turned, torch.eye(2, 7)).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("loss", "too_few"), [(distillation_loss, 0), (relational_distillation_loss, 1)])
def test_distillation_at_its_edges(loss: Callable[[Tensor, Tensor], Tensor], too_few: int) -> None:
    """The teacher learns nothing; too few rows give zero; half types are computed in float32."""
    student, teacher = randn(6, 4, dtype=torch.float32), randn(6, 4, seed=1, dtype=torch.float32)
    loss(student, teacher).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    assert_nothing_learnt(loss(student[:too_few], teacher[:too_few]), student)
    half = student.bfloat16()
    assert loss(half, teacher).dtype == torch.float32
    torch.testing.assert_close(loss(half, teacher), loss(half.float(), teacher))


def test_autocast_does_not_round_similarities() -> None:
    a, b = randn(4, 8, dtype=torch.float32), randn(4, 8, seed=1, dtype=torch.float32)
    for similarity in (cosine_similarity, paired_cosine_similarity):
        exact = similarity(a, b)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(similarity(a, b), exact)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CoSENTLoss(0.0),
        lambda: CosineMSELoss(1, 1),
        lambda: cosine_similarity(torch.zeros(2, 3), torch.zeros(2, 4)),
        lambda: distillation_loss(torch.zeros(2, 3), torch.zeros(1, 3)),
        lambda: relational_distillation_loss(torch.zeros(2, 3), torch.zeros(1, 3)),
    ],
)
def test_wrong_use_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="got"):
        wrong()
