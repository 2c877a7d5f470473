"""`python -m bench.corpora <part> --folder=<folder>`: corpora on the disk, docs/large-corpora.md.

`random`: exact search of random vectors. `sentences`: the real data's sentences embedded, without a break and
killed on the way; then searched exactly and by the approximate index.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.measure import Time, peak_memory
from bench.workload import ROOT, real_data
from idiomtune.benchmarks.embeddings import embedded
from idiomtune.benchmarks.own.collections import read_collection
from idiomtune.benchmarks.own.retrieval import OwnRetrievalBenchmark
from idiomtune.benchmarks.retrieval import SAMPLE, Search, approximate_ranking
from idiomtune.encoder.encoder import Encoder
from idiomtune.io.processes import Processes
from idiomtune.io.vectors import VectorStore
from tests.own_data import write, write_lines

DEPTH = 100
SHARD_SIZE = 50_000
NUM_QUERIES = 100
_MIN_WORDS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.corpora", description=__doc__)
    parser.add_argument("part", choices=["random", "sentences", "embed"])
    parser.add_argument("--folder", type=Path, required=True, help="for what is written; it stays there")
    parser.add_argument("--documents", type=int, help="2,000,000 random ones; 50,000 sentences")
    parser.add_argument("--dimension", type=int, default=384, help="of random vectors")
    parser.add_argument("--store", default="whole", help=argparse.SUPPRESS)  # embed: in which folder
    options = parser.parse_args(arguments)
    if options.part == "random":
        search_random(options.folder / "random", options.documents or 2_000_000, options.dimension)
    elif options.part == "sentences":
        search_sentences(options.folder, options.documents or 50_000)
    else:
        embed(options.folder, options.store)


def search_random(folder: Path, size: int, dimension: int) -> None:
    store = VectorStore(folder, size, dimension, SHARD_SIZE, {"what": "random"})
    start = Time.now()
    for number in store.start("--folder"):
        rows = min(SHARD_SIZE, size - number * SHARD_SIZE)
        shard = torch.randn(rows, dimension, generator=torch.Generator().manual_seed(number))
        store.write(number, shard.numpy())
    written = Time.now() - start
    say(f"{size} × {dimension} written", written, peak=peak_memory())
    queries = torch.randn(NUM_QUERIES, dimension, generator=torch.Generator().manual_seed(-1))
    start = Time.now()
    ranking, _ = Search(queries, store, torch.arange(size)).ranking(DEPTH)
    say(f"exact first {ranking.shape[1]} of {NUM_QUERIES} queries", Time.now() - start, peak=peak_memory())


def search_sentences(folder: Path, size: int) -> None:
    data = real_data()
    assert data is not None, "the real data are not there: set IDIOM_DATA"
    texts = sorted(sentences(Path(data)))
    print(f"{len(texts)} different sentences of {_MIN_WORDS} words or more in {data}")
    chosen = random.Random(0).sample(texts, min(size + NUM_QUERIES, len(texts)))
    asked, documents = chosen[:NUM_QUERIES], chosen[NUM_QUERIES:]
    mine = folder / "mine"
    write_lines(mine / "corpus.jsonl", [{"_id": f"d{n}", "text": t} for n, t in enumerate(documents)])
    write_lines(mine / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(asked)])
    write(mine / "qrels.tsv", "".join(f"q{n}\td{n}\t1\n" for n in range(len(asked))))

    shutil.rmtree(folder / "cut", ignore_errors=True)
    whole = run_embed(folder, "whole")
    kill_after(folder, "cut", num_shards=3)
    cut = run_embed(folder, "cut")
    shards = [{path.name: path.read_bytes() for path in stored(folder, name)} for name in ("whole", "cut")]
    print(f"{len(documents)} embedded: {whole}\nthe rest after a kill: {cut}")
    print(f"the same files: {shards[0] == shards[1] and len(shards[0])}")

    encoder = Encoder.from_pretrained("minilm", device="cpu", tokens_per_forward=512)
    queries = encoder.encode(asked, role="query")
    size, shard_size = len(documents), shard_size_of(len(documents))
    store = VectorStore(stored(folder, "whole")[0].parent, size, encoder.dimension, shard_size)
    ties = torch.arange(size)
    search = Search(queries, store, ties)
    start = Time.now()
    search.ranking(DEPTH)
    exact = Time.now() - start
    say("exact search", exact)
    for index in store.folder.glob("hnsw*"):
        index.unlink()
    start = Time.now()
    approximate_ranking(Search(queries[:1], store, ties), store, DEPTH)
    say("index built", Time.now() - start, peak=peak_memory())
    print(f"index: {(store.folder / 'hnsw.usearch').stat().st_size / len(documents):.0f} bytes a document")
    for depth in (10, DEPTH):
        start = Time.now()
        _, recall = approximate_ranking(search, store, depth)
        say(f"approximate first {depth}, and the exact ones: recall {recall:.4f}", Time.now() - start)
    assert SAMPLE == NUM_QUERIES


def shard_size_of(num_documents: int) -> int:
    """Five shards of them."""
    return -(-num_documents // 5)


def sentences(folder: Path) -> set[str]:
    """All texts of some words in the tables and JSON files of a folder, line by line."""
    csv.field_size_limit(10**9)
    found: set[str] = set()
    for path in sorted(folder.rglob("*.json")):
        for text in strings(json.loads(path.read_text(encoding="utf-8"))):
            found.update(" ".join(line.split()) for line in text.split("\n"))
    for path in sorted([*folder.rglob("*.csv"), *folder.rglob("*.tsv")]):
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for row in csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","):
                found.update(" ".join(line.split()) for cell in row for line in cell.split("\n"))
    return {text for text in found if len(text.split()) >= _MIN_WORDS}


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def embed(folder: Path, name: str) -> None:
    """Embed the corpus, in this process."""
    start = Time.now()
    collection = read_collection("mine", folder / "mine", streamed=True)
    read = Time.now() - start
    store = folder / name
    shard_size = shard_size_of(len(collection.documents))
    (corpus,) = OwnRetrievalBenchmark([collection], store=store, shard_size=shard_size).corpora
    encoder = Encoder.from_pretrained("minilm", device="cpu", tokens_per_forward=512)
    before = peak_memory()
    start = Time.now()
    with embedded(corpus, encoder, Processes(), keep=True):
        taken = Time.now() - start
    print(
        f"read in {read.cpu:.1f} s; embedded in {taken.wall:.0f} s, {taken.cpu:.0f} s of the processor; peak "
        f"{peak_memory():.0f} MiB, {before:.0f} before"
    )


def embed_command(folder: Path, name: str) -> list[str]:
    return [sys.executable, "-m", "bench.corpora", "embed", f"--folder={folder}", f"--store={name}"]


def run_embed(folder: Path, name: str) -> str:
    done = subprocess.run(
        embed_command(folder, name), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    return done.stdout.strip()


def kill_after(folder: Path, name: str, num_shards: int) -> None:
    """Start to embed, and kill it when so many shards are written."""
    with subprocess.Popen(embed_command(folder, name), stdout=subprocess.DEVNULL, cwd=ROOT) as program:
        while len(stored(folder, name)) < num_shards:
            assert program.poll() is None
            time.sleep(0.5)
        time.sleep(2)  # in the midst of the next
        program.kill()


def stored(folder: Path, name: str) -> list[Path]:
    return sorted((folder / name / "mine" / "sentence").glob("*.npy"))


def say(what: str, taken: Time, peak: float | None = None) -> None:
    memory = "" if peak is None else f", peak {peak:.0f} MiB so far"
    print(f"{what}: {taken.wall:.1f} s, {taken.cpu:.1f} s of the processor{memory}", flush=True)


if __name__ == "__main__":
    main()
