"""Token embeddings → embeddings of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

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


def add_meanings(
    sentences: Tensor, meanings: Tensor, meanings_of: Sequence[Sequence[int]], weight: float
) -> Tensor:
    """(S, D), sentences with their expressions' meanings, as far as these fit.

    e + w · max(0, cos(e, m)) · |e| · m, at the length of e: a sentence that uses an expression literally is
    less like its meaning, which then counts for less. Sentences without expressions stay as they are.

    Args:
        sentences: (S, D), of which each is an e.
        meanings: (M, D), each embedded alone; m is the mean of a sentence's, of unit length.
        meanings_of: of each sentence, its rows in `meanings`.
        weight: w.
    """
    pairs = [(row, member) for row, members in enumerate(meanings_of) for member in members]
    rows, members = torch.tensor(pairs, dtype=torch.long, device=sentences.device).view(-1, 2).T
    bare = sentences.float()
    units = normalize(meanings.float(), dim=1)[members]
    means = normalize(torch.zeros_like(bare).index_add(0, rows, units), dim=1)  # (S, D), 0 without any
    fit = cosine_similarity(bare, means, dim=1).clamp(min=0)  # (S,)
    lengths = bare.norm(dim=1, keepdim=True)  # (S, 1)
    mixed = normalize(bare + weight * fit[:, None] * lengths * means, dim=1) * lengths  # (S, D)
    has_meaning = torch.tensor([bool(some) for some in meanings_of], device=sentences.device)  # (S,)
    return torch.where(has_meaning[:, None], mixed.to(sentences.dtype), sentences)
