"""What is measured: time by part, peak memory, useful operations, the machine's own rate."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn


@dataclass(frozen=True)
class Measured:
    """One way, once.

    Attributes:
        losses: of each step.
        scores: flat key → number.
        train_seconds, score_seconds: wall time, without loading model and data.
    """

    losses: list[float]
    scores: dict[str, float]
    train_seconds: float
    score_seconds: float


def sgemm_rate(size: int = 1536, repeats: int = 7) -> float:
    """Floating-point operations a second of float32 `size`³ matrix products, the best of `repeats`."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def peak_memory() -> float:
    """The most memory that this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def useful_operations(model: SentenceTransformer, texts: Iterable[str]) -> float:
    """Floating-point operations of one forward pass over each distinct text, without padding.

    For a text of T tokens 2 · P · T + 4 · L · T² · D, with P the weights of the linear layers (but
    those of an unused pooler), L layers, D their width: matrix products alone, a multiplication and an
    addition counted as two. Training costs three times that: the backward pass has a product for the
    inputs' gradient and one for the weights'.
    """
    first: Any = model[0]
    transformer = first.auto_model
    weights = sum(
        module.weight.numel()
        for name, module in transformer.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name
    )
    depth, width = transformer.config.num_hidden_layers, transformer.config.hidden_size
    distinct = list(dict.fromkeys(texts))
    encoded = model.tokenizer(distinct, truncation=True, max_length=model.max_seq_length)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    return float(sum(2 * weights * n + 4 * depth * n * n * width for n in lengths))
