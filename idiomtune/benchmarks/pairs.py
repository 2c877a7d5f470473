"""The cosines of pairs of sentences."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

_ROUNDING = 1e-6  # of cosines of embeddings in float32


def cosines(first: Tensor, second: Tensor) -> list[float]:
    """The cosine of each pair of rows of two (N, D).

    Sentences that a model reads as the same text have a cosine of 1 up to rounding, which differs by kernel
    and device; they count as 1.
    """
    cosine = functional.cosine_similarity(first.double(), second.double(), dim=1)
    cosine[cosine > 1 - _ROUNDING] = 1.0
    values: list[float] = cosine.tolist()
    return values
