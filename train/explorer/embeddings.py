"""Embeddings of a corpus, computed once: from the cache in which runs keep theirs, under the same key."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import normalize

from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.evaluation.embeddings import embed_or_read
from train.requests import Request


def kept_embeddings(encoder: Encoder, requests: Sequence[Request], what: str) -> Tensor:
    """(R, D), of unit length, on the CPU: read if they were computed before, else computed and kept.

    Args:
        encoder: in evaluation mode.
        what: is embedded, for the progress bar.
    """
    return normalize(embed_or_read(encoder, requests, Processes(), what), dim=1)
