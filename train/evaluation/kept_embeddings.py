"""Embeddings kept in the user's cache: runs from one model, and the explorer, compute them once.

They are kept rather than scores, since fewer things decide them: neither gold data nor a benchmark's options
and code. Scores made of them are the same bit for bit.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from train.encoder.encoder import Encoder
from train.encoder.fingerprint import model_digest
from train.encoder.spans import cut_spans_note
from train.errors import UserError
from train.io.kept_tensors import keep, read_kept
from train.io.paths import cache_folder
from train.requests import Request
from train.runs.folder import package_versions

log = logging.getLogger(__name__)

_MAX_BYTES = 4 * 2**30
_CPUINFO = Path("/proc/cpuinfo")
# Of our code, what decides embeddings, and how they are kept.
_CODE = ("encoder", "expressions", "requests.py", "io/kept_tensors.py", "io/cache.py")
_KNOWN = (
    "torch",
    "transformers",
    "sentence_transformers",
    "train",
)  # packages whose code a version identifies


def kept_file(encoder: Encoder, requests: Sequence[Request], num_processes: int) -> Path | None:
    """The file for these embeddings, whether it is there or not; None if they are not to be kept.

    Those of a model with code of its own, which no sum identifies, are not; nor is what would not fit.
    """
    if len(requests) * encoder.dimension * 4 > _MAX_BYTES:
        return None
    if any(type(module).__module__.partition(".")[0] not in _KNOWN for module in encoder.modules()):
        return None
    try:
        folder = cache_folder() / "embeddings"
    except UserError as error:
        log.warning("no embeddings are kept: %s", error)
        return None
    digest = hashlib.sha256()
    for fact in _facts(encoder, requests, num_processes):
        digest.update(f"{len(fact)} {fact}".encode("utf-8", "surrogatepass"))
    return folder / f"{digest.hexdigest()}.safetensors"


def read_embeddings(path: Path, encoder: Encoder, requests: Sequence[Request]) -> Tensor | None:
    """(R, D), on the CPU, or None if they are not kept; the encoder notes cut spans as if it had embedded."""
    kept = read_kept(path)
    if kept is None:
        return None
    log.info("the model's embeddings are those that an earlier run kept (eval.cache=false: not): %s", path)
    cut = {requests[row] for row in kept["cut_spans"].tolist()}
    if cut:
        spans = {request for request in requests if request.pooling == "span"}
        log.warning("%s", cut_spans_note(len(cut), len(spans), encoder.model.max_seq_length))
    encoder.cut_spans |= cut
    return kept["embeddings"].clone()  # in memory aligned as that of computed ones: it decides rounding


def keep_embeddings(path: Path, encoder: Encoder, requests: Sequence[Request], embeddings: Tensor) -> None:
    """Keep embeddings (R, D), on the CPU, which the encoder has just computed."""
    cut = [row for row, request in enumerate(requests) if request in encoder.cut_spans]
    keep(path, {"embeddings": embeddings, "cut_spans": torch.tensor(cut, dtype=torch.long)}, _MAX_BYTES)


def _facts(encoder: Encoder, requests: Sequence[Request], num_processes: int) -> Iterator[str]:
    """All that decides the embeddings, rounding included."""
    device = encoder.device
    yield model_digest(encoder)
    for name, buffer in encoder.named_buffers():
        yield name
        yield hashlib.sha256(buffer.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
    yield _code_digest()
    yield str(package_versions())
    yield str(device)
    yield torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    yield f"{torch.get_num_threads()} threads, {torch.get_float32_matmul_precision()}"
    is_lowered = torch.is_autocast_enabled(device.type)
    yield str(torch.get_autocast_dtype(device.type) if is_lowered else torch.float32)
    yield f"{encoder.tokens_per_forward} tokens, {num_processes} processes"
    for request in requests:
        yield repr(request)


@cache
def _processor() -> str:
    """The CPU's name: of two with the same instructions for torch, its libraries may still use others."""
    try:
        described = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux
        described = ""
    found = re.search(r"^model name\s*: (.*)$", described, re.MULTILINE)
    name = found.group(1) if found else f"{platform.machine()} {platform.processor()}"
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


@cache
def _code_digest() -> str:
    """SHA-256 of our code that computes embeddings."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for name in _CODE:
        path = root / name
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(source.read_bytes())
    return digest.hexdigest()
