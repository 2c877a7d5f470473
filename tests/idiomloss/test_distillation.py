"""Distillation against loops over rows and pairs, values and gradients, and at its edges."""

import pytest
import torch
from torch import Tensor

from idiomloss import distillation_loss, relational_distillation_loss


def naive(student: Tensor, teacher: Tensor) -> Tensor:
    terms = []
    for s, t in zip(student, teacher, strict=True):
        dot, ss, tt = s.new_zeros(()), s.new_zeros(()), s.new_zeros(())
        for a, b in zip(s, t, strict=True):
            dot, ss, tt = dot + a * b, ss + a * a, tt + b * b
        terms.append(1 - dot / (ss.sqrt() * tt.sqrt()))
    return torch.stack(terms).sum() / len(terms)


@pytest.mark.parametrize("rows", [1, 7])
def test_value_and_gradient_are_those_of_a_loop(rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    student, teacher = torch.randn(2, rows, 5, generator=g, dtype=torch.float64)
    ours, theirs = student.clone().requires_grad_(), student.clone().requires_grad_()
    loss, expected = distillation_loss(ours, teacher), naive(theirs, teacher)
    torch.testing.assert_close(loss, expected)
    loss.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda x: distillation_loss(x, teacher), (ours,))


def test_only_directions_count() -> None:
    """0 where alike whatever the length, 1 at a right angle, 2 where opposite."""
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    assert distillation_loss(3 * teacher, teacher).item() == pytest.approx(0, abs=1e-6)
    assert distillation_loss(teacher[:1], teacher[1:2]).item() == pytest.approx(1)
    assert distillation_loss(-teacher, teacher).item() == pytest.approx(2)


def test_the_teacher_learns_nothing_and_no_rows_give_zero_with_a_graph() -> None:
    student, teacher = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    distillation_loss(student, teacher).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    student.grad = None
    nothing = distillation_loss(student[:0], teacher[:0])
    nothing.backward()  # type: ignore[no-untyped-call]
    assert nothing.item() == 0
    assert student.grad is not None
    assert not student.grad.any()


def test_half_types_are_computed_in_float32() -> None:
    g = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 6, 8, generator=g)
    half = student.bfloat16()
    assert distillation_loss(half, teacher).dtype == torch.float32
    torch.testing.assert_close(distillation_loss(half, teacher), distillation_loss(half.float(), teacher))


def test_rows_must_belong_together() -> None:
    with pytest.raises(ValueError, match=r"one shape \(N, D\), got \(2, 3\) and \(1, 3\)"):
        distillation_loss(torch.zeros(2, 3), torch.zeros(1, 3))


def test_relations_are_those_of_a_loop_over_pairs() -> None:
    g = torch.Generator().manual_seed(2)
    student = torch.randn(5, 3, generator=g, dtype=torch.float64)
    teacher = torch.randn(5, 8, generator=g, dtype=torch.float64)
    ours, theirs = student.clone().requires_grad_(), student.clone().requires_grad_()
    loss = relational_distillation_loss(ours, teacher)
    cosine = torch.nn.functional.cosine_similarity
    terms = [
        (cosine(theirs[i], theirs[j], dim=0) - cosine(teacher[i], teacher[j], dim=0)) ** 2
        for i in range(5)
        for j in range(i)
    ]
    expected = torch.stack(terms).mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda x: relational_distillation_loss(x, teacher), (ours,))


def test_relations_need_two_rows_and_leave_the_teacher_as_it_is() -> None:
    student, teacher = torch.randn(3, 2, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    relational_distillation_loss(student, teacher).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    nothing = relational_distillation_loss(student[:1], teacher[:1])
    nothing.backward()  # type: ignore[no-untyped-call]
    assert nothing.item() == 0
    turned = torch.tensor([[0.0, -2.0], [3.0, 0.0]])  # only relations count
    assert relational_distillation_loss(turned, torch.eye(2, 7)).item() == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="as many rows"):
        relational_distillation_loss(student, teacher[:2])
