"""Distillation: embeddings held to those that another model gave the same texts."""

from __future__ import annotations

from torch import Tensor

from idiomloss.similarity import paired_cosine_similarity


def distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """How far embeddings have turned away from their teacher's.

        L = mean over i of  1 - s(student_i, teacher_i),   s = cosine similarity

    0 where they all point the same way, 2 where opposite; lengths do not matter.

    Args:
        student: (N, D), any floating type; computed in float32 at least.
        teacher: (N, D), row i for row i of `student`. No gradient flows into it.

    Returns:
        A scalar; zero, with a graph, where N is 0.

    Raises:
        ValueError: if the shapes are not the same (N, D).

    References:
        Reimers and Gurevych 2020 (arXiv 2004.09813) hold a student to a teacher's sentence embeddings by
        mean squared error; with a cosine instead, as here, only directions count, as they do in scoring.

    Example:
        >>> import torch
        >>> from idiomloss import distillation_loss
        >>> distillation_loss(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.eye(2))
        tensor(0.)
    """
    similarity = paired_cosine_similarity(student, teacher.detach())
    if not len(similarity):
        return student.sum() * 0.0
    return (1.0 - similarity).mean()
