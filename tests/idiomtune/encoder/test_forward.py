"""Forward batches and pooling, by hand."""

from __future__ import annotations

import pytest
import torch

from idiomtune.encoder.forward import (
    ForwardBatch,
    PooledSentence,
    PooledSpan,
    _cut,
    pool_spans,
    usage_features,
)


def test_a_span_is_the_mean_of_its_tokens() -> None:
    tokens = torch.tensor([[[1.0, 0], [3, 0], [0, 2]], [[5, 5], [7, 1], [9, 9]]])
    spans = [PooledSpan(0, 0, [0, 1]), PooledSpan(1, 1, [1]), PooledSpan(0, 2, [0, 1, 2])]
    expected = torch.tensor([[2, 0], [7, 1], [4 / 3, 2 / 3]])
    torch.testing.assert_close(pool_spans(tokens, spans), expected)


def test_what_a_batch_holds() -> None:
    """Two texts of three and two tokens; a dummy is the last of them alone."""
    sentences, spans = [PooledSentence(0, 5), PooledSentence(1, 2)], [PooledSpan(1, 7, [1])]
    batch = ForwardBatch([[1, 2, 3], [4, 5]], sentences, spans)
    assert batch.num_tokens == 6, "with padding"
    assert batch.num_texts == 2
    assert batch.requests == [5, 2, 7]
    assert [batch.num_texts_of(number) for number in (2, 3, 6, 8)] == [0, 1, 2, 2]
    dummy = batch.dummy()
    assert (dummy.texts, dummy.num_texts, dummy.requests) == ([[4, 5]], 0, [])
    assert dummy.sentences == [PooledSentence(row=0, request=0, num_skipped=0)]


@pytest.mark.parametrize(
    ("lengths", "budget", "min_batches", "batch_size", "expected"),
    [
        ([300] * 4, 10_000, 1, None, [[0, 1, 2, 3]]),
        ([300] * 4, 10_000, 2, None, [[0, 1], [2, 3]]),
        ([300] * 3, 10_000, 2, None, [[0], [1], [2]]),  # of 450 tokens a batch, but 512 are worth one
        ([300] * 4, 10_000, 4, None, [[0], [1], [2], [3]]),
        ([100] * 6, 10_000, 9, None, [[0, 1, 2, 3, 4], [5]]),  # of 512 tokens at least
        ([300] * 4, 900, 1, None, [[0, 1, 2], [3]]),
        ([300] * 4, 10_000, 1, 3, [[0, 1, 2], [3]]),
        ([10, 30, 20], 60, 1, None, [[1, 2], [0]]),  # the longest first, padded to its length
    ],
)
def test_texts_are_cut_by_their_padded_size(
    lengths: list[int],
    budget: int,
    min_batches: int,
    batch_size: int | None,
    expected: list[list[int]],
) -> None:
    assert _cut(lengths, budget, min_batches, batch_size) == expected


@pytest.mark.parametrize("mixed", [False, True])
def test_what_layers_say_of_a_usage(mixed: bool) -> None:
    """The text, the expression (its second token) and what surrounds it; the fourth token is padding."""
    hidden = torch.tensor([[[1.0, 0.01], [0, 1], [1, 0.01], [9, 9]]])
    batch = ForwardBatch([[1, 2, 3]], [], [], usages=[PooledSpan(0, 0, [1])])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        found = usage_features([hidden], batch)
    parts = torch.tensor([[2, 1.02], [0, 1], [2, 0.02]])
    expected = torch.nn.functional.normalize(parts, dim=1).view(1, 6)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
