"""The user's own rankings: are a query's candidates in the order of their grades?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from idiomloss import cosine_similarity
from train.benchmarks import BenchmarkResult
from train.benchmarks.own import RANKING_METRICS, Mode, OwnRankingOptions, own_key
from train.benchmarks.own.fields import span_note
from train.benchmarks.own.ranking_files import RankedQuery, RankingFile, read_ranking
from train.benchmarks.pairs import spearman
from train.benchmarks.retrieval import (
    average_precision,
    ndcg_of_gains,
    r_precision,
    rank,
    reciprocal_rank,
)
from train.requests import Request

_CUTOFFS = (1, 5, 10)
_TOP_SAVED = 10  # candidates a query in the per-query results


def build(_settings: Any, options: OwnRankingOptions) -> OwnRankingBenchmark:
    """The benchmark on all named files."""
    return OwnRankingBenchmark(
        [
            read_ranking(name, path, options.columns, options.instruction)
            for name, path in options.paths.items()
        ]
    )


class OwnRankingBenchmark:
    """Metrics of each query's own candidates, ordered by their cosine with it; means over queries.

    The gain of nDCG is the grade, 0 at least; of MRR, MAP and R-precision candidates with a grade above 0 are
    relevant, and where candidates came in gold order, the first alone. Spearman's correlation of cosines and
    grades is of queries whose grades differ; 0 if all cosines are equal. Of equal cosines, the candidate
    whose text sorts first ranks first.

    Args:
        files: from :func:`train.benchmarks.own.ranking_files.read_ranking`.
    """

    name = "own_ranking"
    without_gold: Sequence[str] = ()

    def __init__(self, files: Sequence[RankingFile]) -> None:
        self.data = list(files)
        self.files: list[Path] = [file.path for file in files]
        self.requests: list[Request] = []
        for file in files:
            self.requests += [Request(text) for query in file.queries for text in query.candidates]
            for mode in file.modes:
                self.requests += [query.query.request(mode, "query") for query in file.queries]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        result = BenchmarkResult({})
        start = 0
        for file in self.data:
            sizes = [len(query.candidates) for query in file.queries]
            candidates = torch.split(embeddings[start : start + sum(sizes)], sizes)
            start += sum(sizes)
            for mode in file.modes:
                queries = embeddings[start : start + len(sizes)]
                start += len(sizes)
                cosines = [
                    cosine_similarity(queries[i : i + 1], of_query)[0]
                    for i, of_query in enumerate(candidates)
                ]
                _score_mode(file, mode, cosines, result)
            key = f"{self.name}/{file.name}"
            if file.num_left_out:
                result.notes.append(
                    f"{key}: {file.num_left_out} of {file.num_left_out + len(sizes)} queries have no "
                    "relevant candidate, or one candidate alone: left out"
                )
            result.notes.extend(span_note((query.query for query in file.queries), f"{key}/span"))
        return result


def _score_mode(file: RankingFile, mode: Mode, cosines: Sequence[Tensor], result: BenchmarkResult) -> None:
    orders = [rank(of_query[None])[0].tolist() for of_query in cosines]
    gains = _padded(
        [[max(q.grades[i], 0.0) for i in order] for q, order in zip(file.queries, orders, strict=True)]
    )
    ideal = gains.sort(dim=1, descending=True).values
    # Of candidates in gold order every one but the last has a grade: the first alone is relevant.
    hits = gains == ideal[:, :1] if file.is_ordered else gains > 0
    num_relevant = hits.sum(1)
    metrics: dict[str, list[float | None]] = {
        **{f"ndcg@{k}": ndcg_of_gains(gains, ideal, k).tolist() for k in _CUTOFFS},
        "mrr": reciprocal_rank(hits).tolist(),
        "map": average_precision(hits, num_relevant).tolist(),
        "r_precision": r_precision(hits, num_relevant).tolist(),
        "spearman": [
            _spearman(query, of_query.tolist()) for query, of_query in zip(file.queries, cosines, strict=True)
        ],
    }
    for metric in RANKING_METRICS:
        values = [value for value in metrics[metric] if value is not None]
        if values:
            result.scores[own_key("own_ranking", file.name, mode, metric)] = sum(values) / len(values)
    for number, (query, order) in enumerate(zip(file.queries, orders, strict=True)):
        result.per_query.append(
            {
                "name": file.name,
                "mode": mode,
                "id": query.id,
                "group": query.group,
                "query": query.query.text,
                **{metric: metrics[metric][number] for metric in RANKING_METRICS},
                "top": [{"text": query.candidates[i], "grade": query.grades[i]} for i in order[:_TOP_SAVED]],
            }
        )


def _spearman(query: RankedQuery, cosines: Sequence[float]) -> float | None:
    """None where grades do not differ."""
    if len(set(query.grades)) < 2:
        return None
    return spearman(cosines, query.grades) or 0.0


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    """(Q, K), float64: rows of different lengths, with zeros after them."""
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.float64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return padded
