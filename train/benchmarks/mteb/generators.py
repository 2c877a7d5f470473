"""Random generators, which mteb seeds with 42 when it is imported and whenever a task is made or scored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def unchanged_generators() -> Iterator[None]:
    """Keeps the state of those of Python, NumPy and torch."""
    pythons, numpys = random.getstate(), np.random.get_state()
    # A check of options must not start CUDA, after which no process can be forked.
    is_pending = torch.cuda.is_available() and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=[] if is_pending else None):
        try:
            yield
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)
    if is_pending:  # until it starts torch only notes a seed for it
        torch.cuda.manual_seed_all(torch.initial_seed())
