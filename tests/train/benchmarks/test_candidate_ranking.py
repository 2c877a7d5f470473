"""Metrics of an order against loops and by hand."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from train.benchmarks.candidate_ranking import graded_ndcg, predicted_ranks, rank_difference, top1_accuracy


def test_by_hand() -> None:
    """Candidates b, a, c, d, e predicted as a, b, e, c, d; gold a, b, c, d, e."""
    scores = torch.tensor([[0.8, 0.9, 0.2, 0.1, 0.5]])
    gold = torch.tensor([[1, 0, 2, 3, 4]])
    predicted = predicted_ranks(scores)
    assert predicted.tolist() == [[1, 0, 3, 4, 2]]
    assert top1_accuracy(predicted, gold).tolist() == [1.0]
    assert rank_difference(predicted, gold).tolist() == [4.0]  # c and d one down, e two up
    log2 = math.log2
    dcg = 4 / log2(2) + 3 / log2(3) + 0 / log2(4) + 2 / log2(5) + 1 / log2(6)
    best = 4 / log2(2) + 3 / log2(3) + 2 / log2(4) + 1 / log2(5)
    assert graded_ndcg(predicted, gold).item() == pytest.approx(dcg / best, abs=1e-12)


def test_the_gold_order_is_best_and_its_reverse_worst() -> None:
    gold = torch.tensor([[3, 1, 4, 0, 2]])
    assert rank_difference(gold, gold).item() == 0
    assert graded_ndcg(gold, gold).item() == pytest.approx(1.0, abs=1e-12)
    assert rank_difference(4 - gold, gold).item() == 12
    assert top1_accuracy(4 - gold, gold).item() == 0


def test_chance_is_a_fifth_and_eight() -> None:
    """Over all 120 orders, as the task's chance level."""
    orders = torch.tensor(list(permutations(range(5))))
    gold = torch.arange(5).expand_as(orders)
    assert top1_accuracy(orders, gold).mean().item() == pytest.approx(0.2)
    assert rank_difference(orders, gold).mean().item() == pytest.approx(8.0)


def test_ties_keep_the_order_of_the_table() -> None:
    assert predicted_ranks(torch.tensor([[0.1, 0.5, 0.5, 0.1, 0.5]])).tolist() == [[3, 0, 1, 4, 2]]
