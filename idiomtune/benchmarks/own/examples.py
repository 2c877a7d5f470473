"""Queries of the user's own data on the page of a run, with what the model found first."""

from __future__ import annotations

from pydantic import BaseModel, Field

from idiomtune.declarations.examples import Answer, Example, Examples, QueryRecords, worst_and_best


class _Found(BaseModel, strict=True):
    id: str
    text: str = ""
    grade: float


class _Query(BaseModel, strict=True):
    """A record of a query in one mode; of scored pairs, which have none, without `top`."""

    name: str
    mode: str
    id: str
    query: str = ""
    ndcg: float = Field(0.0, alias="ndcg@10")
    is_main: bool = False
    top: list[_Found] = []


def examples(run: QueryRecords) -> Examples | None:
    """Worst and best queries by nDCG@10, and those that training changed most; None without any."""
    queries = [query for query in run.read(_Query) if query.top]
    if not queries:
        return None
    shown = [q for q in queries if q.is_main] or [q for q in queries if q.mode == queries[0].mode]
    before = {(q.name, q.mode, q.id): q for q in run.read(_Query, untrained=True) if q.top}
    pairs = [(query, before.get((query.name, query.mode, query.id))) for query in shown]
    return Examples("What it finds", "", worst_and_best(pairs, lambda query: query.ndcg, _example))


def _example(query: _Query, before: _Query | None) -> Example:
    marks = ("✗ not relevant", "✓ relevant")
    answers = [Answer(d.text or d.id, marks[d.grade > 0], d.grade > 0) for d in query.top]
    remark = "" if before is None else f", untrained {before.ndcg:.3f}"
    topic = f"by {query.mode}" + (f", {query.name}" if query.name else "")
    return Example(query.query, "", topic, "nDCG@10", f"{query.ndcg:.3f}", remark, answers)
