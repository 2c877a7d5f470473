"""Embeddings for benchmarks: asked for by all processes, remembered, and kept in the user's cache.

Runs from one model, and the explorer, compute them once. Embeddings are kept rather than scores, since fewer
things decide them: neither gold data nor a benchmark's options and code. Scores made of them are the same bit
for bit. Those of corpora are in files, which all processes of a launch write, shard by shard.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from idiomtune.benchmarks import Corpus
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import cut_spans_note, truncated_note
from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.sharding import is_sharded
from idiomtune.errors import UserError
from idiomtune.io.cache import put_tensors, read_tensors
from idiomtune.io.files import cache_folder, package_versions
from idiomtune.io.processes import Processes
from idiomtune.io.terminal import progress_bar
from idiomtune.io.vectors import VectorStore
from idiomtune.requests import Request

log = logging.getLogger(__name__)

_MAX_BYTES = 4 * 2**30
_CPUINFO = Path("/proc/cpuinfo")
# Of our code, what decides embeddings, and how they are kept.
_CODE = ("encoder", "expressions.py", "requests.py", "io/cache.py")
# Packages whose code a version identifies.
_KNOWN = ("torch", "transformers", "sentence_transformers", "idiomtune")
_NUM_PROBES = 8  # texts that are embedded once more
_NEAR = 1e-4  # how far these may be from what is remembered: batches differ, and so does rounding
_EQUAL = 1e-6  # of the largest number in an embedding: rounding differs by more where texts do


def embed_or_read(encoder: Encoder, requests: Sequence[Request], processes: Processes, what: str) -> Tensor:
    """(R, D), on the CPU: from the user's cache, else computed and written there. All processes call it.

    What is in the cache only the main process reads: the others then have no rows.

    Args:
        encoder: in evaluation mode. It notes cut spans also if they are not embedded again.
        what: is embedded, for the progress bar.
    """
    path = processes.from_main(lambda: kept_file(encoder, requests, processes.count))
    if path is None:
        return embed_now(encoder, requests, processes, what)
    kept = read_tensors(path) if processes.is_main else None
    if not processes.any(kept is not None):
        embeddings = embed_now(encoder, requests, processes, what)
        if processes.is_main:
            rows = {
                name: torch.tensor([row for row, r in enumerate(requests) if r in cut], dtype=torch.long)
                for name, cut in (("cut_spans", encoder.cut_spans), ("truncated", encoder.truncated))
            }
            put_tensors(path, {"embeddings": embeddings, **rows}, _MAX_BYTES)
        return embeddings
    if kept is None:
        return torch.zeros(0, encoder.dimension)
    option = "eval.cache=false, in idiomtune evaluate cache=false"
    log.info("embeddings are read from the cache (to compute them again: %s): %s", option, path)
    if cut_spans := {requests[row] for row in kept["cut_spans"].tolist()}:
        spans = {request for request in requests if request.pooling == "span"}
        log.warning("%s", cut_spans_note(len(cut_spans), len(spans), encoder.model.max_seq_length))
        encoder.cut_spans |= cut_spans
    encoder.truncated |= {requests[row] for row in kept["truncated"].tolist()}
    return kept["embeddings"].clone()  # in memory aligned as that of computed ones: it decides rounding


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


def embed_now(encoder: Encoder, requests: Sequence[Request], processes: Processes, what: str) -> Tensor:
    """(R, D), in float32, on the CPU, in all processes, each of which embeds a part."""
    with progress_bar(what, encoder.num_texts(requests)) as advance:
        return embed_all(encoder, requests, processes, advance).float().cpu()


def check_finite(embeddings: Tensor, what: str = "") -> None:
    """Raise UserError if an embedding is not finite: its ranks would look like a score."""
    if not embeddings.isfinite().all():
        raise UserError(
            f"{what}the model gives embeddings that are not finite (NaN or infinite): its weights are "
            "broken, or the precision is too low for it (precision=fp32 is the safe one)"
        )


class Remembered:
    """The embeddings that benchmarks ask for, in the main process; equal requests are embedded once.

    Args:
        encoder: in evaluation mode.
        cached: take the embeddings from the user's cache, and write new ones there.
        known: a model's digest and its embeddings, which are not computed again if the encoder is the same.

    Attributes:
        stores: of the benchmarks' corpora.
        seconds: that embedding took.
    """

    def __init__(
        self,
        encoder: Encoder,
        processes: Processes,
        *,
        cached: bool,
        known: tuple[str, Remembered] | None = None,
    ) -> None:
        self._encoder, self._processes = encoder, processes
        self._embed = embed_or_read if cached else embed_now
        self._rows: dict[Request, int] = {}
        self._table = torch.zeros(0, encoder.dimension)
        self.seconds = 0.0
        self._autocast = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        self.stores: dict[Corpus, VectorStore] = {}
        if known is not None and known[0] == encoder.digest() and known[1]._embeds_as(encoder):
            self._rows, self._table = dict(known[1]._rows), known[1]._table
            encoder.truncated |= known[1]._encoder.truncated
            encoder.cut_spans |= known[1]._encoder.cut_spans

    def _embeds_as(self, encoder: Encoder) -> bool:
        """Whether some texts, embedded again, are what they were."""
        probes = list(self._rows)[:: -(-len(self._rows) // _NUM_PROBES) or 1]
        before = self._table[[self._rows[probe] for probe in probes]]
        return torch.allclose(
            embed_now(encoder, probes, Processes(), "scoring"), before, atol=_NEAR, rtol=_NEAR
        )

    def __contains__(self, request: Request) -> bool:
        return request in self._rows

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    @property
    def num_texts(self) -> int:
        """How many distinct texts were read."""
        return self._encoder.num_texts(self._rows)

    def add(self, requests: Sequence[Request]) -> None:
        """Embed requests. All processes call it, with the same ones."""
        start = time.perf_counter()
        dtype, is_lowered = self._autocast  # scoring itself runs in full precision
        with torch.autocast("cpu", dtype, enabled=is_lowered):
            new = self._embed(self._encoder, requests, self._processes, "scoring")
        if self._processes.is_main:
            for row, request in enumerate(requests, len(self._table)):
                self._rows.setdefault(request, row)
            self._table = torch.cat([self._table, new]) if len(self._table) else new
        self.seconds += time.perf_counter() - start

    def __call__(self, requests: Sequence[Request]) -> Tensor:
        """(R, D). The other processes get what is new from the main one, and :meth:`add` it too."""
        new = list(dict.fromkeys(request for request in requests if request not in self._rows))
        if new:
            self._processes.from_main(lambda: new)
            self.add(new)
        rows = [self._rows[request] for request in requests]
        first = rows[0] if rows else 0
        is_stretch = rows == list(range(first, first + len(rows)))  # a view: of a large corpus no second copy
        found = self._table[first : first + len(rows)] if is_stretch else self._table[rows]
        check_finite(found)
        return found

    def stored(self, corpus: Corpus) -> VectorStore:
        """See :class:`idiomtune.benchmarks.Embeddings`."""
        return self.stores[corpus]

    def remarks(self) -> list[str]:
        """What puts all scores in doubt."""
        table, notes = self._table, []
        if len(table) > 1 and len({request.text for request in self._rows}) > 1:
            spread = table.amax(0) - table.amin(0)
            if spread.max() <= _EQUAL * table.abs().max():
                notes.append(
                    f"ALL {len(table)} EMBEDDINGS ARE EQUAL, whatever the text: the scores mean nothing. "
                    "The model's weights are broken, or it was trained until nothing was left (too high a "
                    "trainer.learning_rate)"
                )
                log.warning("%s", notes[-1])
        spans = {request for request in self._rows if request.pooling == "span"}
        if num_cut := len(spans & self._encoder.cut_spans):
            notes.append(cut_spans_note(num_cut, len(spans), self._encoder.model.max_seq_length))
        prompts, stores = self._encoder.prompts, self.stores.values()
        if prompts.query or prompts.document:
            notes.append(
                f"prompts: {prompts.query!r} before queries, and before all texts of tasks without documents "
                f"(pairs of sentences); {prompts.document!r} before documents"
            )
        num_truncated = self._encoder.num_texts(self._encoder.truncated & self._rows.keys())
        if num_truncated := num_truncated + sum(store.num_truncated for store in stores):
            num_texts = self.num_texts + sum(store.num_rows for store in stores)
            notes.append(truncated_note(num_truncated, num_texts, self._encoder.model.max_seq_length))
        return notes


class Cut:
    """The same embeddings, cut to their first `size` dimensions."""

    def __init__(self, embed: Remembered, size: int) -> None:
        self._embed, self._size = embed, size

    def __call__(self, requests: Sequence[Request]) -> Tensor:
        return self._embed(requests)[:, : self._size]

    def stored(self, corpus: Corpus) -> VectorStore:
        return self._embed.stored(corpus).cut(self._size)


def _facts(encoder: Encoder, requests: Sequence[Request], num_processes: int) -> Iterator[str]:
    """All that decides the embeddings, rounding included."""
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
    yield str(_precision(encoder))
    yield f"{encoder.tokens_per_forward} tokens, {num_processes} processes"
    for request in requests:
        yield repr(request)


def _precision(encoder: Encoder) -> torch.dtype:
    device = encoder.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


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


@contextmanager
def embedded(corpus: Corpus, encoder: Encoder, processes: Processes, *, keep: bool) -> Iterator[VectorStore]:
    """The corpus' embeddings, on the disk.

    Args:
        encoder: in evaluation mode.
        keep: leave them in the corpus' folder, where the next call for the same model and documents finds
            them, also what was written of them when it was cut short. Else they are in a folder of their own
            there, which is deleted at the end.

    Raises:
        UserError: if the folder holds another model's embeddings, or those of other documents; if an
            embedding is not finite.
    """
    folder = corpus.folder if keep else processes.from_main(lambda: _temporary(corpus))
    # The main process's model, but the documents that this process has read: both decide a shard's sum.
    facts = processes.from_main(lambda: _facts_of_store(encoder) if keep else {})
    facts |= {"documents": corpus.digest}
    store = VectorStore(folder, corpus.size, encoder.dimension, corpus.shard_size, facts)
    try:
        with store.locked() if processes.is_main else nullcontext():
            _embed_shards(corpus, store, encoder, processes)
        yield store
    finally:
        if processes.is_main and not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _temporary(corpus: Corpus) -> Path:
    try:
        corpus.folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="checkpoint-", dir=corpus.folder))
    except OSError as error:
        raise UserError(
            f"{corpus.option}={corpus.folder}: cannot be written: {error.strerror or error}"
        ) from None


def _facts_of_store(encoder: Encoder) -> dict[str, str]:
    return {"model": encoder.digest(), "precision": str(_precision(encoder)).removeprefix("torch.")}


def _embed_shards(corpus: Corpus, store: VectorStore, encoder: Encoder, processes: Processes) -> None:
    """Write the shards that are missing. The documents are read one after the other."""
    size = corpus.shard_size
    missing = processes.from_main(lambda: store.start(corpus.option))
    if processes.is_main and len(missing) < store.num_shards:
        counts = store.num_shards - len(missing), store.num_shards
        log.info("%s: %d of %d shards are there already, in %s", corpus.name, *counts, store.folder)
    # Sharded weights need all processes for each forward pass; else each embeds shards of its own, so that
    # a shard's batches, and with them its bits, do not depend on the number of processes.
    in_common = is_sharded(encoder)
    numbers = missing if in_common else missing[processes.rank :: processes.count]
    documents, position = iter(corpus.requests()), 0
    truncated = frozenset(encoder.truncated)
    with progress_bar(
        f"embedding {corpus.name}", sum(min(size, corpus.size - n * size) for n in numbers)
    ) as advance:
        for number in numbers:
            skipped = number * size - position
            requests = list(islice(documents, skipped, skipped + size))
            position = (number + 1) * size
            together = processes if in_common else Processes()
            rows = embed_all(encoder, requests, together, advance).float().cpu()
            advance(len(requests) - len({request.text for request in requests}))  # no text is embedded twice
            check_finite(rows, f"{corpus.name}: ")
            if processes.is_main or not in_common:
                store.write_truncated(number, sum(request in encoder.truncated for request in requests))
                store.write(number, rows.numpy())
            encoder.truncated = set(truncated)  # of a large corpus they would be many
            encoder.reader.tokenizer.forget()
    processes.any(False)  # waits for all
    if missing:
        processes.from_main(lambda: _check_complete(store, corpus))


def _check_complete(store: VectorStore, corpus: Corpus) -> None:
    """Raises UserError if a shard is missing that another process wrote."""
    if missing := store.missing():
        raise UserError(
            f"{store.folder}: {len(missing)} of {store.num_shards} shards are missing: all processes must "
            f"use the same disk (name a folder on it with {corpus.option}=) and read the same documents"
        )
