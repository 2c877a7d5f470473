"""Token embeddings → embeddings of sentences and of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from train.encoder.forward import PooledSentence, PooledSpan

_MAX_SPAN_ELEMENTS = 2**26  # numbers in memory while spans are pooled: 256 MB in float32


def pool_sentences(
    pooling: nn.Module, features: dict[str, Any], sentences: Sequence[PooledSentence]
) -> list[Tensor]:
    """Pieces (n, D') that together have a row for each of the sentences, in their order.

    Args:
        pooling: the model's own module; D' is D times its number of poolings side by side.
        features: with `token_embeddings` (B, T, D) and `attention_mask` (B, T).
    """
    if any(sentence.num_skipped for sentence in sentences):
        tokens, mask = features["token_embeddings"], features["attention_mask"]
        return [
            pooling(
                {
                    "token_embeddings": tokens[row : row + 1],  # (1, T, D)
                    "attention_mask": mask[row : row + 1],  # (1, T)
                    "prompt_length": num_skipped,
                }
            )["sentence_embedding"]
            for row, _, num_skipped in sentences
        ]
    if not sentences:
        return []
    pooled: Tensor = pooling(features)["sentence_embedding"]  # (B, D')
    rows = torch.tensor([sentence.row for sentence in sentences], device=pooled.device)  # (n,)
    return [pooled[rows]]  # (n, D')


def pool_spans(token_embeddings: Tensor, spans: Sequence[PooledSpan]) -> Tensor:
    """(S, D), the mean of each span's token embeddings.

    Args:
        token_embeddings: (B, T, D).
        spans: S of them.
    """
    device = token_embeddings.device
    rows = torch.tensor([span.row for span in spans], device=device)  # (S,)
    weights = torch.zeros(len(spans), token_embeddings.shape[1])  # (S, T)
    for s, span in enumerate(spans):
        weights[s, span.positions] = 1.0 / len(span.positions)
    weights = weights.to(device, token_embeddings.dtype)
    # (S, T, D) · (S, T, 1) → (S, D); no matrix product, which autocast would round to bfloat16
    chunk_size = max(_MAX_SPAN_ELEMENTS // token_embeddings[0].numel(), 1)  # spans
    chunks = zip(torch.split(rows, chunk_size), torch.split(weights, chunk_size), strict=True)
    return torch.cat([(token_embeddings[r] * w[:, :, None]).sum(1) for r, w in chunks])
