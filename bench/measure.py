"""What is measured: wall and processor time by part, peak memory, useful work, the machine's own rate."""

from __future__ import annotations

import os
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
class Time:
    """Seconds.

    Attributes:
        wall: by the clock, with whatever else the machine did meanwhile.
        cpu: of the processor, all threads of this process together; other programs hardly change it.
    """

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Time:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Time) -> Time:
        return Time(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: Time) -> Time:
        return Time(self.wall + other.wall, self.cpu + other.cpu)


@dataclass(frozen=True)
class Measured:
    """One way, once. What a workload leaves out is None (times) or empty.

    Attributes:
        losses: of each step.
        scores: flat key → number.
        steps: of each step but the first, in which libraries and caches warm up; without loading and saving.
        train_memory: the most memory that the process has held up to the last step, in MiB.
        score: of the scorecard.
    """

    losses: list[float]
    scores: dict[str, float]
    steps: list[Time]
    train_memory: float | None
    score: Time | None

    @property
    def train(self) -> Time | None:
        """Of all `steps`."""
        return sum(self.steps, Time(0.0, 0.0)) if self.steps else None


TURNS = "BENCH_TURNS"  # set where several ways take their steps in turn, each in a process of its own
STEP_ENDED = "step"


class Steps:
    """Takes the time of training steps, and lets other ways take theirs in between."""

    def __init__(self) -> None:
        self._start = Time.now()
        self._each: list[Time] = []
        self._memory = 0.0

    def ended(self) -> None:
        """A step is over."""
        self._each.append(Time.now() - self._start)
        self._memory = peak_memory()
        if TURNS in os.environ:
            print(STEP_ENDED, flush=True)
            sys.stdin.readline()
        self._start = Time.now()

    @property
    def seconds(self) -> list[Time]:
        """Of each step but the first."""
        return self._each[1:]

    @property
    def memory(self) -> float:
        """Peak memory at the end of the last step, in MiB."""
        return self._memory


def matmul_rate(dtype: torch.dtype = torch.float32, size: int = 1536, repeats: int = 7) -> float:
    """Operations a second of processor time of `size`³ matrix products, the best of `repeats`."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(repeats):
        start = Time.now()
        a @ b
        best = min(best, (Time.now() - start).cpu)
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
