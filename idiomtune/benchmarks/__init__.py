"""One module per benchmark: it requests embeddings and returns scores. Knows no model."""

from __future__ import annotations

import csv
import io
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idiomtune.errors import DataMissingError, UserError
from idiomtune.plugins.benchmark import BenchmarkOptions, QueryResult
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.registry import benchmark_type
from idiomtune.plugins.score import Score
from idiomtune.requests import EmbeddingRequest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Benchmark",
    "Embed",
    "Result",
    "Score",
    "requests_of",
    "texts_of",
]

log = logging.getLogger(__name__)

# (R, D), in float32 on the CPU, row i for request i; equal requests are embedded once.
Embed = Callable[[Sequence[EmbeddingRequest]], "Tensor"]

_REHEARSAL_WIDTH = 8  # of the random embeddings in a rehearsal


@dataclass
class Result:
    """The scores, records and predictions of one checkpoint on a benchmark.

    Attributes:
        per_query: one record for each query (or item) and mode.
        predictions: file name → text, in the task's submission format.
        notes: how to read the scores, a sentence each.
    """

    scores: list[Score] = field(default_factory=list)
    per_query: list[dict[str, Any]] = field(default_factory=list)
    predictions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def by_key(self) -> dict[str, float]:
        """Key → value."""
        return {str(score): score.value for score in self.scores}


class Benchmark(ABC):
    """A benchmark requests the embeddings that it needs, and returns scores.

    Attributes:
        name: first part of its score keys.
        files: the data files that were read, for the run's record.
        without_gold: splits that give predictions, but no scores.
        takes_whole_embeddings: it cannot score embeddings that are truncated to fewer dimensions.
    """

    name: str
    files: Sequence[Path] = ()
    without_gold: Sequence[str] = ()
    takes_whole_embeddings: bool = False

    @property
    def requests(self) -> Sequence[EmbeddingRequest]:
        """All that it scores, if that is known beforehand.

        Those of all benchmarks are embedded in one pass, which reads each text once for all poolings and
        spans.
        """
        return ()

    @abstractmethod
    def score(self, embed: Embed, /) -> Result:
        """The :class:`Result`; `embed` (an :data:`Embed`) returns the embeddings of requests."""


def scores_of(records: Iterable[Mapping[str, Any]], benchmark: str) -> list[Score]:
    """The scores that a benchmark's records give; NaN where a statistic has no value."""
    from idiomtune.reports.statistics import statistic_of

    results: dict[str, dict[str, QueryResult]] = {}
    for result in chain.from_iterable(map(benchmark_type(benchmark).results, records)):
        if result.pair or result.value is not None:
            results.setdefault(result.key, {})[result.query] = result
    scores = []
    for of_score in results.values():
        first, *_ = of_score.values()
        pairs = (result.pair or (result.value, 0.0) for result in of_score.values())
        value = statistic_of(first.statistic if first.pair else "mean", *zip(*pairs, strict=True))
        scores.append(replace(first.score, value=value))
    return scores


def table_text(header: Sequence[str], rows: Iterable[Sequence[str]], **form: str) -> str:
    """A table of predictions; `form` has the delimiter and line ends of its task, as of `csv.writer`."""
    file = io.StringIO(newline="")
    csv.writer(file, **form).writerows([header, *rows])  # type: ignore[arg-type]
    return file.getvalue()


def requests_of(benchmark: Benchmark) -> Sequence[EmbeddingRequest]:
    """All requests of a benchmark: those that it declares, or that a rehearsal on random numbers asks for."""
    if requests := benchmark.requests:
        return requests
    import torch

    generator = torch.Generator().manual_seed(0)
    embeddings: dict[EmbeddingRequest, Tensor] = defaultdict(
        lambda: torch.randn(_REHEARSAL_WIDTH, generator=generator)
    )

    def embed(requests: Sequence[EmbeddingRequest]) -> Tensor:
        rows = [embeddings[request] for request in requests]
        return torch.stack(rows) if rows else torch.zeros(0, _REHEARSAL_WIDTH)

    benchmark.score(embed)
    return list(embeddings)


def texts_of(benchmarks: Sequence[Benchmark]) -> dict[str, Iterator[str]]:
    """Benchmark → the texts that it embeds; lazily, since finding them may take a rehearsal."""

    def texts(benchmark: Benchmark) -> Iterator[str]:
        yield from (request.text for request in requests_of(benchmark))

    return {benchmark.name: texts(benchmark) for benchmark in benchmarks}


def build_benchmarks(
    chosen: Mapping[str, BenchmarkOptions], inputs: RunInputs, names: Sequence[str] | None = None
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks, their data read and checked.

    Args:
        chosen: name → options.
        names: those to build, whose data must be there; by default all.

    Returns:
        The benchmarks, and for each benchmark whose data is missing the reason why it is not scored.

    Raises:
        UserError: if data is wrong, or is missing for a named benchmark, or for all benchmarks.
    """
    benchmarks: list[Benchmark] = []
    missing: dict[str, str] = {}
    for name in chosen if names is None else names:
        try:
            benchmarks.append(chosen[name].build(inputs))
        except DataMissingError as error:
            if names is not None:
                raise
            missing[name] = str(error)
            log.warning("benchmark %s is NOT SCORED: %s", name, error)
    if not benchmarks:
        raise UserError("no benchmark could be scored:\n" + "\n".join(missing.values()))
    for benchmark in benchmarks:
        if splits := ", ".join(benchmark.without_gold):
            log.warning("%s has no gold on %s: predictions, no scores", benchmark.name, splits)
    return benchmarks, missing
