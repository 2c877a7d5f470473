"""The user's own rankings: are a query's candidates in the order of their grades?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from idiomloss import cosine_similarity
from train.benchmarks import Embed, Result
from train.benchmarks.own import RANKING_METRICS, Mode, OwnRankingOptions, own_score
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
        self.files = [file.path for file in files]

    @property
    def announced(self) -> list[Request]:
        """Candidates, and queries by each mode."""
        requests: list[Request] = []
        for file in self.data:
            requests += [Request(text) for query in file.queries for text in query.candidates]
            requests += [q.query.request(mode, "query") for mode in file.modes for q in file.queries]
        return requests

    def score(self, embed: Embed) -> Result:
        """The scores of all files and modes."""
        result = Result()
        for file in self.data:
            candidates = [embed([Request(text) for text in query.candidates]) for query in file.queries]
            for mode in file.modes:
                queries = embed([query.query.request(mode, "query") for query in file.queries])
                cosines = [
                    cosine_similarity(query[None], of_query)[0]
                    for query, of_query in zip(queries, candidates, strict=True)
                ]
                _score_mode(file, mode, cosines, result)
            key, num = f"{self.name}/{file.name}", len(file.queries)
            if file.num_left_out:
                result.notes.append(
                    f"{key}: {file.num_left_out} of {file.num_left_out + num} queries have no "
                    "relevant candidate, or one candidate alone: left out"
                )
            result.notes.extend(span_note((query.query for query in file.queries), f"{key}/span"))
        return result


def _score_mode(file: RankingFile, mode: Mode, cosines: Sequence[Tensor], result: Result) -> None:
    orders = [rank(of_query[None])[0].tolist() for of_query in cosines]
    gains = pad_sequence(  # (Q, K), zeros after a query's own
        [
            torch.tensor([max(query.grades[i], 0.0) for i in order], dtype=torch.float64)
            for query, order in zip(file.queries, orders, strict=True)
        ],
        batch_first=True,
    )
    ideal = gains.sort(dim=1, descending=True).values
    # Of candidates in gold order every one but the last has a grade: the first alone is relevant.
    hits = gains == ideal[:, :1] if file.is_ordered else gains > 0
    num_relevant = hits.sum(1)
    spearmans = zip(file.queries, cosines, strict=True)
    metrics: dict[str, list[float | None]] = {
        **{f"ndcg@{k}": ndcg_of_gains(gains, ideal, k).tolist() for k in _CUTOFFS},
        "mrr": reciprocal_rank(hits).tolist(),
        "map": average_precision(hits, num_relevant).tolist(),
        "r_precision": r_precision(hits, num_relevant).tolist(),
        "spearman": [_spearman(query, of_query.tolist()) for query, of_query in spearmans],
    }
    for metric in RANKING_METRICS:
        values = [value for value in metrics[metric] if value is not None]
        if values:
            mean = sum(values) / len(values)
            result.scores.append(own_score("own_ranking", file.name, mode, metric, mean))
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
