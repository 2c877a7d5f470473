"""Embeddings that are computed once: kept in a folder, under a sum of all that decides them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

import train
from train.encoder.encoder import Encoder
from train.encoder.fingerprint import model_digest
from train.io.kept_tensors import keep, read_kept
from train.io.paths import cache_folder
from train.io.progress import progress_bar
from train.requests import Request

_NAME = "embeddings"
_MAX_BYTES = 4 * 2**30  # of all files; those that were not used for longest are deleted


def folder() -> Path:
    """Where embeddings are kept."""
    return cache_folder() / "explore"


@torch.no_grad()
def kept_embeddings(encoder: Encoder, model_sum: str, requests: Sequence[Request], what: str) -> Tensor:
    """(R, D), of unit length, on the CPU: read if they were computed before, else computed and kept.

    Args:
        model_sum: of the encoder, by :func:`sum_of_model`.
        what: is embedded, for the progress bar.
    """
    asked = (json.dumps(asdict(request), sort_keys=True) for request in requests)
    path = folder() / f"{_sum_of([model_sum, *asked])}.safetensors"
    kept = read_kept(path)
    if kept is not None:
        return kept[_NAME]
    with progress_bar(what, len({request.text for request in requests})) as advance:
        embeddings = normalize(encoder(requests, on_progress=advance).float().cpu(), dim=1)
    keep(path, {_NAME: embeddings}, _MAX_BYTES)
    return embeddings


def sum_of_model(encoder: Encoder) -> str:
    """A sum of what decides embeddings: the model, the device and our code."""
    return _sum_of([train.__version__, str(encoder.device), model_digest(encoder)])


def _sum_of(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()
