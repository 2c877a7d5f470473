"""Embeddings that are computed once: kept in a folder, under a sum of all that decides them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

import train
from train.encoder.encoder import Encoder
from train.encoder.fingerprint import model_digest
from train.io.files import sync
from train.io.paths import cache_folder
from train.io.progress import progress_bar
from train.requests import Request

log = logging.getLogger(__name__)

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
    found = _read(path, len(requests), encoder.dimension)
    if found is None:
        with progress_bar(what, len({request.text for request in requests})) as advance:
            found = normalize(encoder(requests, on_progress=advance).float().cpu(), dim=1)
        _write(path, found)
    return found


def sum_of_model(encoder: Encoder) -> str:
    """A sum of what decides embeddings: the model, the device and our code."""
    return _sum_of([train.__version__, str(encoder.device), model_digest(encoder)])


def _sum_of(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()


def _read(path: Path, num_rows: int, width: int) -> Tensor | None:
    """None where there is no such file, or it is damaged."""
    try:
        found = load_file(path)[_NAME]
        path.touch()
    except (OSError, SafetensorError, KeyError):
        return None
    return found if found.shape == (num_rows, width) else None


def _write(path: Path, embeddings: Tensor) -> None:
    """Keep the embeddings, unless the folder cannot be written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({_NAME: embeddings.contiguous()}, partial)
        sync(partial)
        partial.replace(path)
        _delete_unused(path)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        log.warning("the embeddings cannot be kept in %s: %s", path.parent, error)
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _delete_unused(newest: Path) -> None:
    files = sorted(newest.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    size = sum(path.stat().st_size for path in files)
    for path in files:
        if size > _MAX_BYTES and path != newest:
            size -= path.stat().st_size
            path.unlink()
