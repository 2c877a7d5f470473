"""The user's own rankings: are a query's candidates in the order of their grades?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from idiomloss import cosine_similarity
from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.retrieval import (
    average_precision,
    ndcg_of_gains,
    r_precision,
    rank,
    recall,
    reciprocal_rank,
    tie_break,
)
from idiomtune.benchmarks.user import RANKING_METRICS, Mode, UserRankingOptions, user_score
from idiomtune.benchmarks.user.collections import (
    UserQuery,
    in_mode,
    modes_of,
    request_of,
    span_note,
)
from idiomtune.data.user.forms import RANKINGS
from idiomtune.data.user.table import UserRecord, UserTable, as_number, unique
from idiomtune.data.user.text_table import normal_text
from idiomtune.errors import UserError
from idiomtune.requests import Request
from idiomtune.statistics import statistic_of

log = logging.getLogger(__name__)

_TOP_SAVED = 10  # documents or candidates per query in the per-query results


def build(_settings: Any, options: UserRankingOptions) -> UserRankingBenchmark:
    """The benchmark on all named files."""
    paths = options.paths
    data = {name: read_ranking(path, options.columns, options.instruction) for name, path in paths.items()}
    return UserRankingBenchmark(data, list(paths.values()))


def read_ranking(
    path: Path, columns: Mapping[str, str] | None = None, instruction: str | None = None
) -> list[UserQuery]:
    """Queries with candidates, in one of four forms, recognized by the columns.

    - `query`, `candidates` (a list), `grades` (a list of as many numbers)
    - `query`, `candidates`, the best first: the first of N has the grade N - 1, and it alone is relevant
    - `query`, `positives`, `negatives` (lists, or one text each)
    - `query_id`, `query`, `candidate`, `grade`: one row per pair

    In CSV and TSV a list is written as in JSON.

    Args:
        columns: role → column, where the names of the file's columns are not understood as they are.
        instruction: before queries whose row has none.

    Returns:
        The queries, each with its candidates in the order of their texts.

    Raises:
        UserError: naming file, row and field of all problems.
    """
    queries: dict[str, UserQuery] = {}
    check = unique()

    def add(record: UserRecord) -> None:
        text, group = request_of(record, "query", instruction=instruction), record.optional_name("group")
        if table.form.name != "by pair":
            ids = [record.name(role) for role in ("id", "row_id") if role in record.names]
            id_ = check(record, ids[0] if ids else str(record.number))
            grades = _grades(record, table.form.name)
            above = len(grades) - 2.0 if table.form.name == "ordered" else 0.0
            queries[id_] = UserQuery(id_, text, grades, group, above)
            return
        id_ = record.name("id") if "id" in record.names else text.text
        candidate, grade = record.text("candidate"), record.number_in("grade")
        query = queries.setdefault(id_, UserQuery(id_, text, {}, group))
        if (query.text, query.group) != (text, group):
            raise record.error("query", f"is not that of the first row of {id_!r} (query, span, group)")
        if (first := query.grades.setdefault(candidate, grade)) != grade:
            problem = f"{candidate!r} has the grades {first:g} and {grade:g} for the query {id_!r}"
            raise record.error("candidate", problem)

    table = UserTable(path, RANKINGS, columns, "benchmark.own_ranking.columns")
    for _ in table.read(add):
        pass
    table.log_unread()
    own = [normal_text(query.text.text) in map(normal_text, query.grades) for query in queries.values()]
    if any(own):
        log.warning("%s: %d of %d queries are a candidate of their own", path, sum(own), len(own))
    if not any(map(_can_be_scored, queries.values())):
        problem = "no query has two candidates or more, one of them relevant (a grade above 0): no scores"
        raise UserError(problem, file=path)
    return [replace(query, grades=dict(sorted(query.grades.items()))) for query in queries.values()]


def _grades(record: UserRecord, form: str) -> dict[str, float]:
    """The grade of each candidate of a row that has all of a query."""
    role = "positives" if form == "relevant" else "candidates"
    candidates = _texts(record, role)
    grades = [float(len(candidates) - 1 - i) for i in range(len(candidates))]
    if form == "relevant":
        negatives = _texts(record, "negatives") if record.has("negatives") else []
        grades = [1.0] * len(candidates) + [0.0] * len(negatives)
        candidates = candidates + negatives
    elif form == "graded":
        values = record.list_in("grades")
        numbers = [as_number(value) for value in values]
        if None in numbers:
            raise record.error("grades", f"{values[numbers.index(None)]!r} is not a number")
        grades = [number for number in numbers if number is not None]
        if len(grades) != len(candidates):
            raise record.error("grades", f"{len(grades)} grades of {len(candidates)} candidates")
    if len(set(candidates)) < len(candidates):
        twice = next(text for text in candidates if candidates.count(text) > 1)
        raise record.error(role, f"{twice!r} occurs twice among the candidates")
    return dict(zip(candidates, grades, strict=True))


def _texts(record: UserRecord, role: str) -> list[str]:
    texts = record.list_in(role)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise record.error(role, f"{text!r} is not a text")
    return texts


def _can_be_scored(query: UserQuery) -> bool:
    return len(query.grades) > 1 and max(query.grades.values()) > 0


class UserRankingBenchmark:
    """Metrics of each query's own candidates, ordered by their cosine with it; means over queries.

    The gain of nDCG is the grade, 0 at least; for MRR, MAP and R-precision candidates with a grade above 0
    are relevant, and where candidates came in gold order, only the first. Spearman's correlation of cosines
    and grades is of queries whose grades differ; 0 if all cosines are equal. Hashes of their texts
    order candidates with equal cosines. Queries with a single candidate, or without a relevant one, are left
    out.

    Args:
        data: name in score keys → queries from :func:`read_ranking`.
        files: that were read.
    """

    name = "own_ranking"
    without_gold: Sequence[str] = ()

    def __init__(self, data: Mapping[str, Sequence[UserQuery]], files: Sequence[Path] = ()) -> None:
        self.data = {name: list(filter(_can_be_scored, queries)) for name, queries in data.items()}
        self.files = files
        self._num_queries = {name: len(queries) for name, queries in data.items()}

    @property
    def requests(self) -> list[Request]:
        """Candidates, and queries by each mode."""
        requests: list[Request] = []
        for queries in self.data.values():
            texts = [query.text for query in queries]
            requests += [Request(text) for query in queries for text in query.grades]
            requests += [request for mode in modes_of(texts) for request in in_mode(texts, mode)]
        return requests

    def score(self, embed: Embed) -> Result:
        """The scores of all files and modes."""
        result = Result()
        for name, queries in self.data.items():
            candidates = [embed([Request(text) for text in query.grades]) for query in queries]
            texts = [query.text for query in queries]
            for mode in modes_of(texts):
                cosines = [
                    cosine_similarity(query[None], of_query)[0]
                    for query, of_query in zip(embed([*in_mode(texts, mode)]), candidates, strict=True)
                ]
                _score_mode(name, queries, mode, cosines, result)
            if num_left_out := self._num_queries[name] - len(queries):
                result.notes.append(
                    f"{self.name}/{name}: {num_left_out} of {self._num_queries[name]} queries have no "
                    "relevant candidate, or only one candidate: left out"
                )
            result.notes.extend(span_note(texts, f"{self.name}/{name}/span"))
        return result


def _score_mode(
    name: str, queries: Sequence[UserQuery], mode: Mode, cosines: Sequence[Tensor], result: Result
) -> None:
    ranked: list[list[str]] = []
    correlations: list[float | None] = []
    for query, of_query in zip(queries, cosines, strict=True):
        texts, grades = list(query.grades), list(query.grades.values())
        ranked.append([texts[i] for i in rank(of_query[None], ties=tie_break(texts))[0].tolist()])
        correlation = None  # where all grades are equal
        if len(set(grades)) > 1:
            correlation = float(np.nan_to_num(statistic_of("spearman", of_query.tolist(), grades)))
        correlations.append(correlation)
    add_rankings(
        result,
        ("own_ranking", name, mode),
        RANKING_METRICS,
        queries,
        ranked,
        lambda text: {"text": text},
        {"spearman": correlations},
    )


def add_rankings(
    result: Result,
    score_parts: tuple[str, str, Mode],
    names: Sequence[str],
    queries: Sequence[UserQuery],
    ranked: Sequence[Sequence[Any]],
    shown: Callable[[Any], Mapping[str, str]],
    columns: Mapping[str, Sequence[float | None]] | None = None,
) -> Tensor:
    """Add metrics, which are means over queries, and a record for each query.

    A record's `rank` is that of its first relevant document; one more than are ranked if there is none.

    Args:
        score_parts: benchmark, name of the data, mode.
        names: of the metrics, such as `ndcg@10`.
        ranked: keys of each query's grades, the best first; without a grade a document is irrelevant.
        shown: what a record says of such a document.
        columns: metrics that are computed already; None for a query that has none.

    Returns:
        bool (Q, K), whether a document is relevant, by rank.
    """
    gains = _pad([[q.grades.get(key, 0.0) for key in row] for q, row in zip(queries, ranked, strict=True)])
    ideal = _pad([sorted(query.grades.values(), reverse=True) for query in queries])
    above = torch.tensor([[query.relevant_above] for query in queries])
    hits, num_relevant = gains > above, (ideal > above).sum(1)
    first = torch.where(hits.any(1), hits.int().argmax(1), hits.shape[1]) + 1

    def metric(name: str) -> Sequence[float | None]:
        kind, _, cutoff = name.partition("@")
        k = int(cutoff) if cutoff else hits.shape[1]
        values = {
            "ndcg": lambda: ndcg_of_gains(gains, ideal, k),
            "map": lambda: average_precision(hits[:, :k], num_relevant),
            "recall": lambda: recall(hits, num_relevant, k),
            "precision": lambda: hits[:, :k].double().mean(1),
            "mrr": lambda: reciprocal_rank(hits, k),
            "r_precision": lambda: r_precision(hits, num_relevant),
        }[kind]()
        return values.tolist()

    metric_of = columns or {}
    metrics = {name: metric_of[name] if name in metric_of else metric(name) for name in names}
    for name, column in metrics.items():
        if values := [value for value in column if value is not None]:
            result.scores.append(user_score(*score_parts, name, sum(values) / len(values)))
    for number, (query, of_query) in enumerate(zip(queries, ranked, strict=True)):
        about = {"name": score_parts[1], "mode": score_parts[2], "id": query.id, "group": query.group}
        own = {name: column[number] for name, column in metrics.items()} | {"rank": int(first[number])}
        top = [
            {**shown(key), "grade": query.grades.get(key, 0.0)}
            for key in of_query[:_TOP_SAVED]
            if key not in query.left_out
        ]
        result.per_query.append({**about, "query": query.text.text, **own, "top": top})
    return hits


def _pad(rows: Sequence[Sequence[float]]) -> Tensor:
    """(Q, K), not negative, zeros after a query's own."""
    tensors = [torch.tensor(row, dtype=torch.float64).clamp(min=0) for row in rows]
    return pad_sequence(tensors, batch_first=True)
