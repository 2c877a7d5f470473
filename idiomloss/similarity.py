"""Cosine similarity: the only place that normalises embeddings."""

import torch
from torch import Tensor
from torch.nn import functional


def full_precision(x: Tensor) -> Tensor:
    """`x` in float32 when it is a half type; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of every row of `a` with every row of `b`.

    Half types are raised to float32 and autocast is switched off: divided by a temperature of 0.05,
    bfloat16's eight bits of mantissa would move a logit by up to 0.08.

    Args:
        a: embeddings, shape (B, D), any floating type.
        b: embeddings, shape (N, D), any floating type.

    Returns:
        Similarities in [-1, 1], shape (B, N), float32 (float64 if both are). A zero vector has
        similarity 0 with everything.

    Raises:
        ValueError: if the shapes are not (B, D) and (N, D).
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"expected (B, D) and (N, D), got {tuple(a.shape)} and {tuple(b.shape)}")
    with torch.autocast(device_type=a.device.type, enabled=False):
        return unit_vectors(a) @ unit_vectors(b).T


def paired_cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of row i of `a` with row i of `b`.

    Args:
        a, b: embeddings, both (N, D), any floating type.

    Returns:
        Similarities in [-1, 1], shape (N,), float32 (float64 if both are).

    Raises:
        ValueError: if the shapes are not the same (N, D).
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(
            f"expected two tensors of one shape (N, D), got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    with torch.autocast(device_type=a.device.type, enabled=False):
        return (unit_vectors(a) * unit_vectors(b)).sum(-1)


def unit_vectors(embeddings: Tensor) -> Tensor:
    """Embeddings of length 1 (a zero vector stays one), in float32 at least; the same shape.

    For many products with the same embeddings; of two such, cosine similarity is the dot product.
    """
    return functional.normalize(full_precision(embeddings), dim=-1)
