"""Losses for pairs with a graded similarity."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss.similarity import paired_cosine_similarity


class CoSENTLoss(nn.Module):
    """Cosines in the order of the scores: every two pairs that are in the wrong order cost.

    With s_i the cosine of pair i and y_i its score,

        L = log(1 + sum over i, j with y_i < y_j of  exp((s_i - s_j) / temperature))

    Args:
        temperature: divides the differences of cosines (1 / 20 is a scale of 20).

    References:
        Su, "CoSENT" (2022), https://kexue.fm/archives/8847; sentence-transformers' `CoSENTLoss`.

    Example:
        >>> import torch
        >>> from idiomloss import CoSENTLoss
        >>> loss = CoSENTLoss()(torch.randn(4, 8), torch.randn(4, 8), torch.tensor([0.0, 1.0, 2.5, 5.0]))
        >>> loss.shape
        torch.Size([])
    """

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def forward(self, first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            first, second: (B, D), the two sides of each pair, any floating type.
            scores: (B,), in any unit.
        """
        cosines = paired_cosine_similarity(first, second) / self.temperature  # (B,)
        differences = cosines[:, None] - cosines[None, :]  # (B, B)
        in_order = scores[:, None] < scores[None, :]
        return torch.cat([cosines.new_zeros(1), differences[in_order]]).logsumexp(0)


class CosineMSELoss(nn.Module):
    """Mean over pairs of (cosine - score)^2, the scores scaled to 0 … 1.

    Args:
        low, high: the scores that stand for the cosines 0 and 1.

    References:
        Reimers and Gurevych 2019, arXiv 1908.10084, section 3 (regression objective).
    """

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        if not low < high:
            raise ValueError(f"low must be less than high, got {low} and {high}")
        self.low, self.high = low, high

    def forward(self, first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
        """The loss of a batch: (B, D), (B, D) and (B,)."""
        cosines = paired_cosine_similarity(first, second)
        return functional.mse_loss(cosines, ((scores - self.low) / (self.high - self.low)).to(cosines))
