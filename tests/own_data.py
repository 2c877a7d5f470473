"""Small files of a user's own, as the benchmarks on such read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.data.idiolink import Split

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


def write_pairs(path: Path, num: int = 24) -> Path:
    """Questions with answers, to be trained on."""
    rows = [f"Where is number {i}?,Number {i} is at home.\n" for i in range(num)]
    return write(path, "question,answer\n" + "".join(rows))


def write_scored(path: Path, num: int = 24) -> Path:
    """Pairs with scores, to be trained on."""
    rows = [f"Cat {i} sat.,Cat {i + i % 3} lay.,{5 - i % 3}\n" for i in range(num)]
    return write(path, "sentence1,sentence2,score\n" + "".join(rows))


def mixture_options(folder: Path) -> list[str]:
    """A mixture of three parts: pairs, scored pairs with a batch size and a weight, and an experiment."""
    faq, rated = write_pairs(folder / "faq.csv"), write_scored(folder / "rated.csv")
    return [
        *("+experiment=mixture", f"+objective.parts.faq.data.train={faq}"),
        f"+objective.parts.rated={{data: {{train: '{rated}'}}, batch_size: 12, weight: 0.5}}",
        "+objective.parts.idioms={experiment: idiolink_ft, proportion: 1.5}",
    ]


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


def write_beir(folder: Path, split: Split) -> Path:
    """A split of IdioLink's in BEIR's layout, with the queries' spans."""
    write_lines(folder / "corpus.jsonl", [{"_id": d.id, "text": d.sentence} for d in split.documents])
    rows = []
    for query in split.queries:
        start, end = query.span_offsets
        rows.append({"_id": query.id, "text": query.sentence, "span_start": start, "span_end": end})
    write_lines(folder / "queries.jsonl", rows)
    judged = [
        f"{query.id}\t{document.id}\t1\n"
        for query in split.queries
        for document in split.documents
        if (query.idiom, query.meaning) == (document.idiom, document.meaning)
    ]
    write(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
