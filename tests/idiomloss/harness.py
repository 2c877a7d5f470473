"""What every loss is compared by."""

import torch
from torch import Tensor


def assert_same(ours: Tensor, expected: Tensor, *inputs: Tensor, learns: bool = True) -> None:
    """Value, and gradient by each of the inputs.

    Args:
        learns: whether the gradients must differ from zero.
    """
    torch.testing.assert_close(ours, expected)
    gradients = torch.autograd.grad(ours, inputs)
    assert all(bool(gradient.any()) for gradient in gradients) or not learns
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs))


def assert_nothing_learnt(loss: Tensor, *inputs: Tensor) -> None:
    """Zero, with a graph, and a gradient of zero."""
    assert loss.item() == 0
    for gradient in torch.autograd.grad(loss, inputs):
        assert torch.equal(gradient, torch.zeros_like(gradient))


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()
