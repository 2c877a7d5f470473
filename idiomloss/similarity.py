"""Cosine similarity (nothing else here normalises embeddings), and losses on the cosines of pairs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def full_precision(x: Tensor) -> Tensor:
    """`x` in float32 if it is a half type; float32 and float64 are unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit_vectors(embeddings: Tensor) -> Tensor:
    """Embeddings of length 1 (a zero vector stays zero), in float32 at least; the same shape.

    For many products with the same embeddings: of two such vectors, cosine similarity is the dot product.
    """
    return functional.normalize(full_precision(embeddings), dim=-1)


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
        raise ValueError(f"expected tensors of one shape (N, D), got {tuple(a.shape)} and {tuple(b.shape)}")
    with torch.autocast(device_type=a.device.type, enabled=False):
        return (unit_vectors(a) * unit_vectors(b)).sum(-1)


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
        >>> first, second = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
        >>> in_order, reversed_ = torch.tensor([5.0, 0.5]), torch.tensor([0.5, 5.0])
        >>> assert CoSENTLoss()(first, second, in_order) < 1e-6 < CoSENTLoss()(first, second, reversed_)
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
        low, high: the scores that correspond to the cosines 0 and 1.

    References:
        Reimers and Gurevych 2019, arXiv 1908.10084, section 3 (regression objective).

    Example:
        >>> import torch
        >>> from idiomloss import CosineMSELoss
        >>> first, second = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
        >>> assert CosineMSELoss(low=0, high=5)(first, second, torch.tensor([5.0, 0.0])) == 0
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


def distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Cosine distance of embeddings from a teacher's embeddings.

        L = mean over i of  1 - s(student_i, teacher_i),   s = cosine similarity

    0 if they all point the same way, 2 if opposite; lengths do not matter.

    Args:
        student: (N, D), any floating type; computed in float32 at least.
        teacher: (N, D), row i for row i of `student`. No gradient flows into it.

    Returns:
        A scalar; zero, with a graph, if N is 0.

    Raises:
        ValueError: if the shapes are not the same (N, D).

    References:
        Reimers and Gurevych 2020 (arXiv 2004.09813) hold a student to a teacher's sentence embeddings by
        mean squared error; with a cosine instead, as here, only directions count, as they do in scoring.

    Example:
        >>> import torch
        >>> from idiomloss import distillation_loss
        >>> assert distillation_loss(3 * torch.eye(2), torch.eye(2)) == 0  # only directions count
        >>> assert distillation_loss(-torch.eye(2), torch.eye(2)) == 2
    """
    similarity = paired_cosine_similarity(student, teacher.detach())
    return (1.0 - similarity).mean() if len(similarity) else student.sum() * 0.0


def relational_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of the similarities between texts from a teacher's similarities.

        L = mean over i < j of  (s(student_i, student_j) - s(teacher_i, teacher_j))^2,   s = cosine similarity

    0 if all texts are as similar to each other as to the teacher, whose embeddings may have any width.

    Args:
        student: (N, D), any floating type; computed in float32 at least.
        teacher: (N, E), row i for row i of `student`. No gradient flows into it.

    Returns:
        A scalar; zero, with a graph, if N is less than 2.

    Raises:
        ValueError: if the numbers of rows differ.

    References:
        Relations between examples instead of their embeddings: Park et al. 2019 (arXiv 1904.05068), of
        distances and angles with a Huber loss; of cosines with a squared error, as here: Tung and Mori 2019
        (arXiv 1907.09682).

    Example:
        >>> import torch
        >>> from idiomloss import relational_distillation_loss
        >>> assert relational_distillation_loss(torch.eye(2), torch.eye(2, 5)) == 0  # any width
        >>> assert relational_distillation_loss(torch.ones(2, 2), torch.eye(2)) > 0.99
    """
    num = len(student)
    if num != len(teacher):
        raise ValueError(f"expected as many rows, got {tuple(student.shape)} and {tuple(teacher.shape)}")
    if num < 2:
        return student.sum() * 0.0
    first, second = torch.triu_indices(num, num, 1, device=student.device)  # each pair once
    teacher = teacher.detach()
    student_cosines = cosine_similarity(student, student)[first, second]
    teacher_cosines = cosine_similarity(teacher, teacher)[first, second]
    return (student_cosines - teacher_cosines).square().mean()
