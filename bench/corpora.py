"""`python -m bench.corpora`: a large corpus in usearch's index, as docs/using.md has it.

The benchmarks' sentences are embedded by the packaged MiniLM, block by block, and searched by the index and
exactly.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from usearch.index import Index

from bench.measure import Time, peak_memory
from bench.workload import real_data
from idiomtune.encoder.encoder import Encoder

BLOCK = 10_000
DEPTH = 10
NUM_QUERIES = 100
_MIN_WORDS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.corpora", description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000)
    size = parser.parse_args(arguments).documents
    data = real_data()
    assert data is not None, "the real data are not there: set IDIOM_DATA"
    texts = sorted(sentences(Path(data)))
    print(f"{len(texts)} different sentences of {_MIN_WORDS} words or more, {size} of them taken")
    chosen = random.Random(0).sample(texts, size + NUM_QUERIES)
    asked, documents = chosen[:NUM_QUERIES], chosen[NUM_QUERIES:]

    encoder = Encoder("minilm", device="cpu")
    index, vectors = Index(ndim=encoder.dimension, metric="cos", dtype="f16"), []
    before, embedding, adding = peak_memory(), Time(0.0, 0.0), Time(0.0, 0.0)
    for start in range(0, size, BLOCK):
        begun = Time.now()
        vectors.append(encoder.encode(documents[start : start + BLOCK], convert_to_numpy=True))
        embedded = Time.now()
        index.add(np.arange(start, start + len(vectors[-1])), vectors[-1])
        embedding, adding = embedding + (embedded - begun), adding + (Time.now() - embedded)
    say("embedded", embedding)
    say("added to the index", adding)
    print(f"memory: {peak_memory():.0f} MiB, {before:.0f} before")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.usearch"
        index.save(path)
        print(f"index: {path.stat().st_size / size:.0f} bytes a document")

    queries = encoder.encode(asked, role="query", convert_to_numpy=True)
    begun = Time.now()
    found = index.search(queries, DEPTH).keys
    say(f"{NUM_QUERIES} queries by the index", Time.now() - begun)
    begun = Time.now()
    unit = torch.nn.functional.normalize
    cosines = unit(torch.from_numpy(queries)) @ unit(torch.from_numpy(np.concatenate(vectors))).T
    exact = cosines.topk(DEPTH).indices.numpy()
    say(f"{NUM_QUERIES} queries exactly", Time.now() - begun)
    hits = [len({*a} & {*b}) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    print(f"the index finds {sum(hits) / NUM_QUERIES / DEPTH:.1%} of the exact first {DEPTH}")


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


def say(what: str, taken: Time) -> None:
    print(f"{what}: {taken.wall:.1f} s, {taken.cpu:.1f} s of the processor", flush=True)


if __name__ == "__main__":
    main()
