"""Token embeddings → embeddings of sentences and of spans, as many as a forward pass is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_MAX_SPAN_ELEMENTS = 2**26  # numbers in memory while spans are pooled: 256 MB in float32


def pool_sentences(
    pooling: nn.Module, features: dict[str, Any], rows: Sequence[int], skipped: Sequence[int]
) -> list[Tensor]:
    """Pieces (n, D'), together a row for each of the texts `rows`.

    Args:
        pooling: the model's own module.
        features: with `token_embeddings` (B, T, D) and `attention_mask` (B, T).
        skipped: of each of the `rows`, how many tokens at its start are not pooled.
    """
    if any(skipped):
        tokens, mask = features["token_embeddings"], features["attention_mask"]
        return [
            pooling(
                {
                    "token_embeddings": tokens[row : row + 1],
                    "attention_mask": mask[row : row + 1],
                    "prompt_length": num_prompt,
                }
            )["sentence_embedding"]
            for row, num_prompt in zip(rows, skipped, strict=True)
        ]
    if not rows:
        return []
    whole: Tensor = pooling(features)["sentence_embedding"]
    return [whole[torch.tensor(rows, device=whole.device)]]


def pool_spans(token_embeddings: Tensor, spans: Sequence[tuple[int, list[int]]]) -> Tensor:
    """(S, D), the mean of each span's tokens.

    Args:
        token_embeddings: (B, T, D).
        spans: S of (text, positions of its tokens).
    """
    device = token_embeddings.device
    of_row = torch.tensor([row for row, _ in spans], device=device)
    weights = torch.zeros(len(spans), token_embeddings.shape[1])
    for s, (_, positions) in enumerate(spans):
        weights[s, positions] = 1.0 / len(positions)
    weights = weights.to(device, token_embeddings.dtype)
    # (S, T, D) · (S, T, 1) → (S, D); no matrix product, which autocast would round to bfloat16
    at_once = max(_MAX_SPAN_ELEMENTS // token_embeddings[0].numel(), 1)
    return torch.cat(
        [
            (token_embeddings[rows] * some[:, :, None]).sum(1)
            for rows, some in zip(torch.split(of_row, at_once), torch.split(weights, at_once), strict=True)
        ]
    )
