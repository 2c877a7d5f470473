"""Queries that a model answers worst and best, with what it retrieved."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from train.benchmarks.idiolink.records import QueryRecord, shown
from train.declarations.examples import Answer, Example, Examples, QueryRecords, Shares
from train.io.files import fingerprint

_PER_LIST = 4  # queries shown as worst, best, …
_FIRST = 5  # documents shown of each
_USAGES = ("idiomatic", "simplification", "sense", "literal")
_OTHER = "other idiom"


class _Document(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    usage: str
    relevant: bool


class _Query(QueryRecord):
    sentence: str
    top: list[_Document]


_Texts = Mapping[str, tuple[str, str]]  # id of a document → sentence, idiom


def examples(run: QueryRecords) -> Examples | None:
    """Worst and best queries by nDCG@10, and those that training changed most; None without records."""
    queries, untrained = run.read(_Query), run.read(_Query, untrained=True)
    if not queries:
        return None
    split, mode = shown(queries, run.monitor)
    queries = [q for q in queries if (q.split, q.mode) == (split, mode)]
    before = {q.id: q.ndcg for q in untrained if (q.split, q.mode) == (split, mode)}
    texts, notes = _documents(run.files)
    lists = {
        heading: [_example(query, before.get(query.id), texts) for query in chosen]
        for heading, chosen in _lists(queries, before).items()
        if chosen
    }
    return Examples("What it retrieves", f"IdioLink {split}, {mode}", lists, notes, _shares(queries, texts))


def _lists(queries: Sequence[_Query], before: Mapping[str, float]) -> dict[str, list[_Query]]:
    ordered = sorted(queries, key=lambda query: query.ndcg)
    number = min(_PER_LIST, len(ordered) // 2) or 1
    changes = [(query.ndcg - before[query.id], query) for query in ordered if query.id in before]
    changes.sort(key=lambda pair: pair[0])
    return {
        "Worst": ordered[:number],
        "Best": ordered[::-1][:number],
        "Lost most by training": [query for change, query in changes[:number] if change < 0],
        "Gained most by training": [query for change, query in changes[::-1][:number] if change > 0],
    }


def _documents(files: Mapping[str, str]) -> tuple[_Texts, list[str]]:
    """The documents in the run's own data files, where these are as they were."""
    texts: dict[str, tuple[str, str]] = {}
    missing = []
    for path, checksum in ((Path(name), checksum) for name, checksum in files.items()):
        if path.name != "indexes.json":
            continue
        try:
            if fingerprint(path) != checksum:
                missing.append(f"{path.parent.name}/{path.name} has changed since")
                continue
            for record in json.loads(path.read_text(encoding="utf-8")):
                texts[record["id"]] = record["sentence"], record["idiom"]
        except (OSError, ValueError, KeyError, TypeError):
            missing.append(f"{path.parent.name}/{path.name} is not here")
    return texts, [f"documents are shown by their ids: {', '.join(missing)}"] if missing else []


def _example(query: _Query, before: float | None, texts: _Texts) -> Example:
    return Example(
        query.sentence,
        kind=query.usage,
        topic=f"idiom “{query.idiom}”",
        metric="nDCG@10",
        score=f"{query.ndcg:.3f}",
        remark="" if before is None else f", untrained {before:.3f}",
        answers=[_answer(document, query.idiom, texts) for document in query.top[:_FIRST]],
    )


def _answer(document: _Document, idiom: str, texts: _Texts) -> Answer:
    text, others = texts.get(document.id, (document.id, idiom))
    mark = "✓ relevant" if document.relevant else "✗ not relevant"
    label = document.usage if others == idiom else f"{document.usage}, of “{others}”"
    return Answer(text, mark, document.relevant, document.usage, label)


def _shares(queries: Sequence[_Query], texts: _Texts) -> Shares:
    kinds = [*_USAGES, *([_OTHER] if texts else [])]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for query in queries:
        for document in query.top:
            _, idiom = texts.get(document.id, ("", query.idiom))
            counts[query.usage][document.usage if idiom == query.idiom else _OTHER] += 1
    rows = {usage: [count[kind] / max(1, count.total()) for kind in kinds] for usage, count in counts.items()}
    return Shares("What stands among the first ten documents, by the query's own usage:", kinds, rows)
