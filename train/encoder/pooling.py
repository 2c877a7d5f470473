"""Token embeddings → embeddings of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from train.encoder.forward import PooledSentence


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
