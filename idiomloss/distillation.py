"""Distillation: embeddings held to those that another model gave the same texts."""

from __future__ import annotations

import torch
from torch import Tensor

from idiomloss.similarity import cosine_similarity, paired_cosine_similarity


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


def relational_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """How far similarities between texts have moved from their teacher's.

        L = mean over i < j of  (s(student_i, student_j) - s(teacher_i, teacher_j))^2,   s = cosine similarity

    0 where all texts are as similar to each other as to the teacher, whose embeddings may have any width.

    Args:
        student: (N, D), any floating type; computed in float32 at least.
        teacher: (N, E), row i for row i of `student`. No gradient flows into it.

    Returns:
        A scalar; zero, with a graph, where N is less than 2.

    Raises:
        ValueError: if the numbers of rows differ.

    References:
        Relations between examples instead of their embeddings: Park et al. 2019 (arXiv 1904.05068), of
        distances and angles with a Huber loss; of cosines with a squared error, as here: Tung and Mori 2019
        (arXiv 1907.09682).

    Example:
        >>> import torch
        >>> from idiomloss import relational_distillation_loss
        >>> relational_distillation_loss(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.eye(2, 5))
        tensor(0.)
    """
    if len(student) != len(teacher):
        raise ValueError(f"expected as many rows, got {tuple(student.shape)} and {tuple(teacher.shape)}")
    num = len(student)
    if num < 2:
        return student.sum() * 0.0
    first, second = torch.triu_indices(num, num, 1, device=student.device)  # each pair once
    teacher = teacher.detach()
    ours = cosine_similarity(student, student)[first, second]
    theirs = cosine_similarity(teacher, teacher)[first, second]
    return (ours - theirs).square().mean()
