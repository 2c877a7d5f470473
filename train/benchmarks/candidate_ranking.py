"""Metrics of a full order of a few candidates, from a matrix of scores and the gold ranks.

Among equal scores the first candidate ranks first, see :func:`train.benchmarks.retrieval.rank`.
"""

import torch
from torch import Tensor

from train.benchmarks.retrieval import rank


def predicted_ranks(scores: Tensor) -> Tensor:
    """The rank of each candidate, 0 = best: int (Q, N) from scores (Q, N)."""
    return rank(scores).argsort(dim=1)


def top1_accuracy(predicted: Tensor, gold: Tensor) -> Tensor:
    """Whether the candidate ranked first is the best: (Q,), float64, from ranks (Q, N)."""
    return ((predicted == 0) & (gold == 0)).any(1).double()


def rank_difference(predicted: Tensor, gold: Tensor) -> Tensor:
    """Sum over candidates of |predicted rank - gold rank|: (Q,), float64, from ranks (Q, N)."""
    return (predicted - gold).abs().sum(1).double()


def graded_ndcg(predicted: Tensor, gold: Tensor) -> Tensor:
    """Normalised discounted cumulative gain of the whole order; the gain is N - 1 - gold rank.

    DCG = sum over candidates of gain / log2(predicted rank + 2), divided by that of the gold order.

    Args:
        predicted: int (Q, N), ranks from 0.
        gold: int (Q, N), ranks from 0.

    Returns:
        (Q,), float64.
    """
    gain = (gold.shape[1] - 1 - gold).double()

    def dcg(ranks: Tensor) -> Tensor:
        return (gain / (ranks + 2).double().log2()).sum(1)

    return dcg(predicted) / dcg(gold).clamp(min=torch.finfo(torch.float64).tiny)
