"""Embeddings of a corpus, computed once: from the cache in which runs keep theirs, under the same key."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import normalize

from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.parallel import embed_all
from train.evaluation.kept_embeddings import keep_embeddings, kept_file, read_embeddings
from train.io.progress import progress_bar
from train.requests import Request


def kept_embeddings(encoder: Encoder, requests: Sequence[Request], what: str) -> Tensor:
    """(R, D), of unit length, on the CPU: read if they were computed before, else computed and kept.

    Args:
        encoder: in evaluation mode.
        what: is embedded, for the progress bar.
    """
    path = kept_file(encoder, requests, 1)
    embeddings = None if path is None else read_embeddings(path, encoder, requests)
    if embeddings is None:
        with progress_bar(what, len({request.text for request in requests})) as advance:
            embeddings = embed_all(encoder, requests, Processes(), advance).float().cpu()
        if path is not None:
            keep_embeddings(path, encoder, requests, embeddings)
    return normalize(embeddings, dim=1)
