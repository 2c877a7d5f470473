"""Queries of users' own data for reports, with what the models find."""

from __future__ import annotations

from pydantic import BaseModel, Field

from idiomtune.reports.benchmark_report import (
    GAINED_MOST,
    NUM_FIRST,
    Answer,
    BenchmarkReport,
    Example,
    RecordsOfRun,
    worst_and_best,
)


class _Found(BaseModel, strict=True):
    id: str
    text: str = ""
    grade: float


class _HeldOutQuery(BaseModel, strict=True):
    """A record of a query in one mode; of scored pairs, which have none, without `top`."""

    split: str
    mode: str
    id: str
    query: str = ""
    ndcg: float = Field(0.0, alias="ndcg@10")
    is_main: bool = False
    top: list[_Found] = []

    def first_score(self) -> float:
        """Of the first three texts how many are right; among equals, nDCG@10."""
        return 10 * sum(text.grade > 0 for text in self.top[:NUM_FIRST]) + self.ndcg


def report(run: RecordsOfRun) -> BenchmarkReport | None:
    """Worst and best queries by nDCG@10, and those that training changed most; None without any."""
    queries = [query for query in run.read(_HeldOutQuery) if query.top]
    if not queries:
        return None
    shown = [q for q in queries if q.is_main] or [q for q in queries if q.mode == queries[0].mode]
    before = {(q.split, q.mode, q.id): q for q in run.read(_HeldOutQuery, untrained=True) if q.top}
    pairs = [(query, before.get((query.split, query.mode, query.id))) for query in shown]
    lists = worst_and_best(pairs, lambda query: query.ndcg, _example)
    (gain, *_) = worst_and_best(pairs, _HeldOutQuery.first_score, _example).get(GAINED_MOST, [None])
    return BenchmarkReport("What it finds", examples=lists, greatest_gain=gain)


def _answers(query: _HeldOutQuery) -> list[Answer]:
    marks = ("✗ not relevant", "✓ relevant")
    return [Answer(d.text or d.id, marks[d.grade > 0], d.grade > 0) for d in query.top]


def _example(query: _HeldOutQuery, before: _HeldOutQuery | None) -> Example:
    remark = "" if before is None else f", untrained {before.ndcg:.3f}"
    topic = f"by {query.mode or 'sentence'}" + (f", {query.split}" if query.split else "")
    untrained = [] if before is None else _answers(before)
    score = f"{query.ndcg:.3f}"
    return Example(query.query, "", topic, "nDCG@10", score, remark, _answers(query), untrained)
