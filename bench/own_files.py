"""The workload on a user's own file: a CSV of pairs, or of scored pairs, made of IdioLink's tuples."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

from bench.workload import Kind, Workload, released_tuples

COLUMNS = {"pairs": ("anchor", "positive"), "scored": ("sentence1", "sentence2", "score")}


def on_file(workload: Workload, kind: Kind, folder: Path) -> Workload:
    """The same on such a file, written into `folder`.

    No text is in two rows, so that no way can embed two as one. Scored pairs are a query with its positive
    (score 1), a hard negative (0.5) or a soft one (0), in turn.
    """
    path = folder / f"{kind}.csv"
    seen: set[str] = set()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS[kind])
        for number, texts in enumerate(released_tuples(workload.settings())):
            turn = number % 3 if kind == "scored" else 0
            other = [texts.positive, texts.negatives[0], texts.negatives[-1]][turn]
            if texts.query != other and seen.isdisjoint((texts.query, other)):
                seen.update((texts.query, other))
                writer.writerow([texts.query, other, 1 - turn / 2][: len(COLUMNS[kind])])
    return dataclasses.replace(workload, kind=kind, data=str(path), score=False)
