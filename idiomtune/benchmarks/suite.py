"""The shared evaluation hook: embed every distinct text once, score every benchmark."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from idiomtune.benchmarks import Benchmark, Embed, Result
from idiomtune.benchmarks.embeddings import EmbeddedRequests
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.errors import UserError
from idiomtune.io.processes import Processes
from idiomtune.plugins.registry import score_declaration
from idiomtune.plugins.score import Score, ScoreTable
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scorecard:
    """Scores of one checkpoint on all benchmarks.

    Attributes:
        scores: finite ones by key, as their benchmarks declare them.
        per_query: benchmark → one record a query and mode, as JSON can hold it.
        predictions: file name → text, in a task's submission format.
        notes: how to read the scores, a sentence each.
        seconds: wall time, and of it the encoder's.
        num_texts: distinct texts that were embedded.
        undefined: flat key → NaN or an infinity, for scores that a benchmark could not give. JSON has no such
            numbers, and no comparison with them means anything, so they are kept out of `scores`.
    """

    scores: ScoreTable
    per_query: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    num_texts: int = 0
    undefined: ScoreTable = field(default_factory=ScoreTable)


class Suite:
    """All benchmarks that every checkpoint is scored on.

    Args:
        benchmarks: what they announce is embedded in one pass, and equal requests once. Several may have one
            name (that of a data set), under which their results are put together.
        processes: that share the texts; the main one scores. The others get the scores, and none of what is
            only written to files: records by query and predictions.
        dimensions: the same embeddings, truncated to this many leading dimensions, are scored too, with keys
            that end in `/dim=<n>`; scores only, and of benchmarks that hold no module of the full width.

    Attributes:
        keeps_embeddings: whether :meth:`run`, in one process, sets `last_embeddings`.
        last_embeddings: digest of the model that was scored last, and its embeddings.
        reusable: the `last_embeddings` of another suite, whose model may be the same.
    """

    keeps_embeddings = False
    last_embeddings: tuple[str, EmbeddedRequests] | None = None
    reusable: tuple[str, EmbeddedRequests] | None = None

    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        processes: Processes | None = None,
        dimensions: Sequence[int] = (),
    ) -> None:
        self.benchmarks = list(benchmarks)
        self.dimensions = list(dimensions)
        self._processes = processes or Processes()

    def run(self, encoder: Encoder, only: Sequence[str] | None = None, *, keep: bool = False) -> Scorecard:
        """Score `encoder` in evaluation mode, without gradient, in the caller's autocast (a run has none).

        Args:
            encoder: its train/eval mode is restored.
            only: names of benchmarks to run; by default all.
            keep: take the embeddings from the user's cache, and write new ones there.

        Raises:
            UserError: if an embedding is not finite, or a benchmark gives something other than a score; if
                embeddings do not have more dimensions than `dimensions`.
        """
        start = time.perf_counter()
        chosen = [b for b in self.benchmarks if only is None or b.name in only]
        with evaluation_mode(encoder):
            embed = EmbeddedRequests(encoder, self._processes, cached=keep, earlier=self.reusable)
            embed.add([request for benchmark in chosen for request in benchmark.requests])
            with torch.autocast("cpu", enabled=False):  # a lower precision is the model's alone
                card = self._scored_by_main(chosen, embed)
            if self.keeps_embeddings and self._processes.count == 1:
                self.last_embeddings = encoder.digest(), embed
        return replace(card, seconds=time.perf_counter() - start)

    def _scored_by_main(self, chosen: Sequence[Benchmark], embed: EmbeddedRequests) -> Scorecard:
        whole: list[Scorecard] = []

        def score_or_ask() -> Scorecard:
            whole.append(self._score(chosen, embed))
            return replace(whole[0], per_query={}, predictions={})

        answer: Scorecard | list[EmbeddingRequest] = self._processes.broadcast(score_or_ask)
        while isinstance(answer, list):  # another process: a benchmark asks for more, so embed a part of it
            embed.add(answer)
            answer = self._processes.broadcast(score_or_ask)
        return whole[0] if whole else answer

    def _score(self, chosen: Sequence[Benchmark], embed: EmbeddedRequests) -> Scorecard:
        check_width(self.dimensions, embed.dimension)
        card = Scorecard(ScoreTable())
        scores: dict[str, Score] = {}
        given_by: dict[str, str] = {}
        times = []
        for benchmark in chosen:
            began = time.perf_counter()
            result = benchmark.score(embed)
            valid = _check_result(benchmark, result, given_by) | self._scores_when_truncated(benchmark, embed)
            given_by |= dict.fromkeys(valid, benchmark.name)
            card.per_query.setdefault(benchmark.name, []).extend(_as_json(benchmark.name, result.per_query))
            card.predictions.update(result.predictions)
            card.notes.extend(result.notes)
            scores |= valid
            times.append(f"{benchmark.name} {time.perf_counter() - began:.1f} s")
        seconds, num_texts = embed.seconds, embed.num_texts
        log.info("%d texts embedded in %.1f s, then scored: %s", num_texts, seconds, ", ".join(times))
        card.notes[:0] = embed.remarks()
        undefined = ScoreTable(score for score in scores.values() if not math.isfinite(score.value))
        for key, value in undefined.items():
            log.warning("benchmark %s: %s is %s, which is not a score: left out", given_by[key], key, value)
            card.notes.append(f"{key} is {value}, which is not a score: left out.")
        table = ScoreTable(score for score in scores.values() if math.isfinite(score.value))
        return replace(card, scores=table, undefined=undefined, encoder_seconds=seconds, num_texts=num_texts)

    def _scores_when_truncated(self, benchmark: Benchmark, embed: EmbeddedRequests) -> dict[str, Score]:
        """The benchmark's scores on the first dimensions, at each size."""
        if benchmark.takes_whole_embeddings:
            return {}
        varying = [
            replace(score, dimension=size)
            for size in self.dimensions
            for score in _check_result(benchmark, benchmark.score(_truncate(embed, size)), {}).values()
            if not score.is_constant
        ]
        return score_declaration(varying).parts


def _truncate(embed: Embed, size: int) -> Embed:
    """The same embeddings, truncated to their first `size` dimensions."""
    return lambda requests: embed(requests)[:, :size]


def check_width(dimensions: Sequence[int], width: int) -> None:
    """Check that embeddings of this width can be truncated to so many dimensions.

    Raises:
        UserError: if they have no more.
    """
    if dimensions and (size := max(dimensions)) >= width:
        raise UserError(
            f"embeddings of {width} dimensions cannot be truncated to {size}: name fewer (the full embedding "
            "is always trained and scored) in trainer.matryoshka, eval.dimensions or dimensions"
        )


def _check_result(benchmark: Benchmark, result: Result, given_by: Mapping[str, str]) -> dict[str, Score]:
    """A benchmark's scores by key, with the parts that it declares; values may be NaN or infinite.

    Args:
        given_by: key → benchmark, of earlier scores.

    Raises:
        UserError: if a score has no metric, or is not new, or a value is not a number.
    """
    name = benchmark.name
    scores: list[Score] = []
    for score in result.scores:
        key, value = str(score), score.value
        if not score.metric:
            raise UserError(f"benchmark {name}: the score {key!r} has no metric, such as accuracy")
        if key in given_by:
            other = "another benchmark of this name" if given_by[key] == name else given_by[key]
            raise UserError(
                f"benchmark {name}: it gives the score {key!r}, and so does {other}: rename one of them"
            )
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UserError(
                f"benchmark {name}: the score {key!r} is {value!r}, a {type(value).__name__}: give a number, "
                "of a tensor its .item()"
            )
        scores.append(replace(score, value=number))
    return score_declaration(scores).parts


def _as_json(name: str, value: Any) -> Any:
    """A per-query record as JSON can hold it: NumPy's numbers are plain ones, and NaN and infinities null.

    Raises:
        UserError: if there is anything else in it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _as_json(name, part) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [_as_json(name, part) for part in value]
    raise UserError(
        f"benchmark {name}: a per-query record contains {value!r}, a {type(value).__name__}, which JSON "
        "cannot represent: use numbers, strings, lists and dicts"
    )
