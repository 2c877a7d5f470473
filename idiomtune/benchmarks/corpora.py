"""Corpora that are embedded into files, shard by shard, by all processes of a launch."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import torch

from idiomtune.benchmarks import Corpus
from idiomtune.benchmarks.embeddings import check_finite
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.sharding import is_sharded
from idiomtune.errors import UserError
from idiomtune.io.processes import Processes
from idiomtune.io.terminal import progress_bar
from idiomtune.io.vectors import VectorStore
from idiomtune.requests import Request

log = logging.getLogger(__name__)


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
    try:
        with ExitStack() as held:
            store = _embed(corpus, folder, encoder, processes, held, is_kept=keep)
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


def _embed(
    corpus: Corpus, folder: Path, encoder: Encoder, processes: Processes, held: ExitStack, *, is_kept: bool
) -> VectorStore:
    """Args: held: gets the store's lock, in the main process."""
    # The main process's model, but the documents that this process has read: both decide a shard's sum.
    facts = processes.from_main(lambda: _facts(encoder) if is_kept else {}) | {"documents": corpus.digest}
    store = VectorStore(folder, corpus.size, encoder.dimension, corpus.shard_size, facts)

    def start() -> list[int]:
        held.enter_context(store.locked())
        missing = store.start(corpus.option)
        if len(missing) < store.num_shards:
            counts = store.num_shards - len(missing), store.num_shards
            log.info("%s: %d of %d shards are there already, in %s", corpus.name, *counts, folder)
        return missing

    missing = processes.from_main(start)
    # Sharded weights need all processes for each forward pass; else each embeds shards of its own, so that
    # a shard's batches, and with them its bits, do not depend on the number of processes.
    in_common = is_sharded(encoder)
    numbers = missing if in_common else missing[processes.rank :: processes.count]
    total = sum(min(corpus.shard_size, corpus.size - n * corpus.shard_size) for n in numbers)
    with progress_bar(f"embedding {corpus.name}", total) as advance:
        for number, requests in _shards(corpus, numbers):
            together = processes if in_common else Processes()
            rows = embed_all(encoder, requests, together, advance).float().cpu()
            advance(len(requests) - len({request.text for request in requests}))  # no text is embedded twice
            check_finite(rows, f"{corpus.name}: ")
            if processes.is_main or not in_common:
                store.write(number, rows.numpy())
            encoder.reader.tokenizer.forget()
    processes.any(False)  # waits for all
    if missing:
        processes.from_main(lambda: _check_complete(store, corpus))
    return store


def _facts(encoder: Encoder) -> dict[str, str]:
    device = encoder.device.type
    is_lower = torch.is_autocast_enabled(device)
    precision = torch.get_autocast_dtype(device) if is_lower else torch.float32
    return {
        "model": encoder.digest(),
        "precision": str(precision).removeprefix("torch."),
    }


def _shards(corpus: Corpus, numbers: Sequence[int]) -> Iterator[tuple[int, list[Request]]]:
    """The documents of some shards, which are read one after the other."""
    requests = iter(corpus.requests())
    for number in range(max(numbers, default=-1) + 1):
        shard = islice(requests, corpus.shard_size)
        if number in numbers:
            yield number, list(shard)
        else:
            deque(shard, maxlen=0)


def _check_complete(store: VectorStore, corpus: Corpus) -> None:
    """Raises UserError if a shard is missing that another process wrote."""
    if missing := store.missing():
        raise UserError(
            f"{store.folder}: {len(missing)} of {store.num_shards} shards are missing: all processes must "
            f"use the same disk (name a folder on it with {corpus.option}=) and read the same documents"
        )
