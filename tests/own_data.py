"""Small files of a user's own, as the benchmarks on such read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STS = """sentence1,sentence2,score
A cat sat.,A cat was sitting.,4.5
A cat sat.,Rates rose.,0
He ran.,He walked.,2
"""


def write(path: Path, text: str) -> Path:
    """The file, its folder made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A file of JSON lines."""
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_collection(folder: Path, **changes: str | None) -> Path:
    """Three documents, two queries and their judgements in BEIR's layout.

    Args:
        changes: name of a file (`corpus`, `queries`, `qrels`) → another content; None leaves it out.
    """
    contents = {
        "corpus": '{"_id": "d1", "title": "Cats", "text": "A cat sat."}\n'
        '{"_id": "d2", "text": "Rates rose."}\n{"_id": "d3", "text": "He let the cat out of the bag."}\n',
        "queries": '{"_id": "q1", "text": "a sitting cat"}\n{"_id": "q2", "text": "a secret is told"}\n',
        "qrels": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t1\nq2\td3\t1\n",
    } | changes
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if content is not None:
            write(folder / names[name], content)
    return folder
