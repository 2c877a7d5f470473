"""Embeddings for benchmarks: computed by all processes, once, and cached on the user's disk.

Runs from one model, and the explorer, compute them once. Embeddings are kept rather than scores, since fewer
things decide them: neither gold data nor a benchmark's options and code. Scores made of them are the same bit
for bit.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import truncation_note
from idiomtune.errors import UserError
from idiomtune.io.cache import put_tensors, read_tensors
from idiomtune.io.files import cache_folder, package_versions
from idiomtune.io.processes import Processes
from idiomtune.io.terminal import progress_bar
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)

_MAX_BYTES = 4 * 2**30
# Of our code, what decides embeddings, and how they are kept.
_CODE = ("encoder", "glossaries", "expressions.py", "requests.py", "io/cache.py")
# Packages whose code a version identifies.
_KNOWN = ("torch", "transformers", "sentence_transformers", "idiomtune")
_NUM_PROBES = 8  # texts that are embedded once more
_NEAR = 1e-4  # how far these may be from what is remembered: batches differ, and so does rounding
_EQUAL = 1e-6  # of the largest number in an embedding: rounding differs by more where texts do


def embed_or_read(
    encoder: Encoder, requests: Sequence[EmbeddingRequest], processes: Processes, title: str
) -> Tensor:
    """(R, D), on the CPU: from the user's cache, else computed and written there. All processes call it.

    What is in the cache only the main process reads: the others then have no rows.

    Args:
        encoder: in evaluation mode. It notes cut spans also if they are not embedded again.
        title: of the progress bar.
    """
    path = processes.broadcast(lambda: stored_file(encoder, requests, processes.count))
    if path is None:
        return embed_now(encoder, requests, processes, title)
    stored = read_tensors(path) if processes.is_main else None
    if not processes.any(stored is not None):
        embeddings = embed_now(encoder, requests, processes, title)
        if processes.is_main:
            rows = {
                name: torch.tensor([row for row, r in enumerate(requests) if r in noted], dtype=torch.long)
                for name, noted in (
                    ("truncated_spans", encoder.truncated_spans),
                    ("truncated", encoder.truncated),
                )
            }
            put_tensors(path, {"embeddings": embeddings, **rows}, _MAX_BYTES)
        return embeddings
    if stored is None:
        return torch.zeros(0, encoder.dimension)
    option = "eval.cache=false, in idiomtune evaluate cache=false"
    log.info("embeddings are read from the cache (to compute them again: %s): %s", option, path)
    encoder.truncated_spans |= {requests[row] for row in stored["truncated_spans"].tolist()}
    encoder.truncated |= {requests[row] for row in stored["truncated"].tolist()}
    return stored["embeddings"].clone()  # in memory aligned as that of computed ones: it decides rounding


def stored_file(encoder: Encoder, requests: Sequence[EmbeddingRequest], num_processes: int) -> Path | None:
    """The cache's file for these embeddings, existing or not; None if they are not cached.

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
    for fact in _machine_facts(encoder, requests, num_processes):
        digest.update(f"{len(fact)} {fact}".encode("utf-8", "surrogatepass"))
    return folder / f"{digest.hexdigest()}.safetensors"


@torch.no_grad()
def embed_now(
    encoder: Encoder, requests: Sequence[EmbeddingRequest], processes: Processes, title: str
) -> Tensor:
    """(R, D), in float32, on the CPU, in all processes, each of which embeds a part."""
    with progress_bar(title, encoder.reader.num_texts(requests)) as advance:
        embeddings: Tensor = encoder(requests, advance, processes=processes).float().cpu()
        return embeddings


class EmbeddedRequests:
    """EmbeddingRequest → embedding, in the main process; equal requests are embedded once.

    Args:
        encoder: in evaluation mode.
        cached: take the embeddings from the user's cache, and write new ones there.
        earlier: a model's digest and its embeddings, which are not computed again if the encoder is the same.

    Attributes:
        seconds: that embedding took.
    """

    def __init__(
        self,
        encoder: Encoder,
        processes: Processes,
        *,
        cached: bool,
        earlier: tuple[str, EmbeddedRequests] | None = None,
    ) -> None:
        self._encoder, self._processes = encoder, processes
        self._embed = embed_or_read if cached else embed_now
        self._rows: dict[EmbeddingRequest, int] = {}
        self._table = torch.zeros(0, encoder.dimension)
        self.seconds = 0.0
        self._autocast = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        if earlier is not None and earlier[0] == encoder.digest() and earlier[1]._embeds_as(encoder):
            self._rows, self._table = dict(earlier[1]._rows), earlier[1]._table
            encoder.truncated |= earlier[1]._encoder.truncated
            encoder.truncated_spans |= earlier[1]._encoder.truncated_spans

    def _embeds_as(self, encoder: Encoder) -> bool:
        """Whether a sample of texts still has the same embeddings."""
        probes = list(self._rows)[:: -(-len(self._rows) // _NUM_PROBES) or 1]
        before = self._table[[self._rows[probe] for probe in probes]]
        return torch.allclose(
            embed_now(encoder, probes, Processes(), "scoring"), before, atol=_NEAR, rtol=_NEAR
        )

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    @property
    def num_texts(self) -> int:
        """How many distinct texts were read."""
        return self._encoder.reader.num_texts(self._rows)

    def add(self, requests: Sequence[EmbeddingRequest]) -> None:
        """Embed new requests. All processes call it, with the same ones."""
        requests = [request for request in requests if request not in self._rows]
        if not requests:
            return
        start = time.perf_counter()
        dtype, is_lowered = self._autocast  # scoring itself runs in full precision
        with torch.autocast("cpu", dtype, enabled=is_lowered):
            new = self._embed(self._encoder, requests, self._processes, "scoring")
        if self._processes.is_main:
            for row, request in enumerate(requests, len(self._table)):
                self._rows.setdefault(request, row)
            self._table = torch.cat([self._table, new]) if len(self._table) else new
        self.seconds += time.perf_counter() - start

    def __call__(self, requests: Sequence[EmbeddingRequest]) -> Tensor:
        """(R, D). New requests go from the main process to the others, and all :meth:`add` them."""
        new = list(dict.fromkeys(request for request in requests if request not in self._rows))
        if new:
            self._processes.broadcast(lambda: new)
            self.add(new)
        rows = [self._rows[request] for request in requests]
        first = rows[0] if rows else 0
        stretch = slice(first, first + len(rows))  # a view: of a large corpus no second copy
        is_stretch = rows == list(range(stretch.start, stretch.stop))
        embeddings = self._table[stretch if is_stretch else rows]
        if not embeddings.isfinite().all():  # its ranks would look like a score
            raise UserError(
                "the model gives embeddings that are not finite (NaN or infinite): its weights are "
                "broken, or the precision is too low for it (precision=fp32 is the safe one)"
            )
        return embeddings

    def remarks(self) -> list[str]:
        """Notes on truncated texts and spans, which affect all scores."""
        table, notes = self._table, []
        has_texts = len({request.text for request in self._rows}) > 1
        if has_texts and (table.amax(0) - table.amin(0)).max() <= _EQUAL * table.abs().max():
            notes.append(
                f"ALL {len(table)} EMBEDDINGS ARE EQUAL, whatever the text: the scores mean nothing. The "
                "model's weights are broken, or it was trained until nothing was left (too high a "
                "trainer.learning_rate)"
            )
            log.warning("%s", notes[-1])
        limit = self._encoder.model.max_seq_length
        spans = {request for request in self._rows if request.pooling == "span"}
        if num_truncated := len(spans & self._encoder.truncated_spans):
            notes.append(truncation_note(num_truncated, len(spans), "spans", limit))
        prompts = self._encoder.prompts
        if prompts.query or prompts.document:
            notes.append(
                f"prompts: {prompts.query!r} before queries, and before all texts of tasks without documents "
                f"(pairs of sentences); {prompts.document!r} before documents"
            )
        if num_truncated := self._encoder.reader.num_texts(self._encoder.truncated & self._rows.keys()):
            notes.append(truncation_note(num_truncated, self.num_texts, "texts", limit))
        return notes


def _machine_facts(
    encoder: Encoder, requests: Sequence[EmbeddingRequest], num_processes: int
) -> Iterator[str]:
    """Everything that the embeddings depend on, rounding included."""
    device = encoder.device
    yield encoder.digest()
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


def _processor() -> str:
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


@cache
def _code_digest() -> str:
    """SHA-256 of our code that computes embeddings."""
    root = Path(__file__).resolve().parents[1]
    paths = [path for name in _CODE for path in (sorted((root / name).rglob("*.py")) or [root / name])]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
