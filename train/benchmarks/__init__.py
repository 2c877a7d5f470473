"""One module a benchmark: which embeddings it needs, and scores from them. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from train.requests import Request

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Distributions:
    """Values side by side, for a plot: groups, and in each the same series.

    Attributes:
        caption: how to read it.
    """

    title: str
    y_label: str
    groups: Mapping[str, Mapping[str, Sequence[float]]]
    caption: str = ""


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark gives for one checkpoint.

    Attributes:
        scores: flat key → number.
        per_query: one record for each query (or item) and mode.
        predictions: file name → text, in the task's submission format.
        plots: name → what to draw.
        notes: how to read the scores, a sentence each.
        maps: one record for each group of texts: where they lie, for a figure.
    """

    scores: dict[str, float]
    per_query: list[dict[str, Any]] = field(default_factory=list)
    predictions: dict[str, str] = field(default_factory=dict)
    plots: dict[str, Distributions] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Corpus:
    """Documents whose embeddings are kept in files, since memory may not hold them.

    A benchmark names them in a list `corpora`. Its :meth:`Benchmark.score` then gets a second argument: of
    each corpus a :class:`train.io.vectors.VectorStore`, row i for its i-th document.

    Attributes:
        name: for people.
        folder: where the embeddings are kept.
        option: that names it, for messages.
        requests: the N documents; each call begins anew.
        size: N.
        digest: SHA-256 of the documents, in their order.
        shard_size: documents a file, and in memory at a time.
    """

    name: str
    folder: Path
    option: str
    requests: Callable[[], Iterable[Request]]
    size: int
    digest: str
    shard_size: int


class Benchmark(Protocol):
    """A benchmark states what it needs embedded, then turns embeddings into scores."""

    @property
    def name(self) -> str:
        """First part of its score keys."""
        ...

    @property
    def requests(self) -> Sequence[Request]:
        """Every text that it needs embedded."""
        ...

    @property
    def files(self) -> Sequence[Path]:
        """The data files that were read, for the run's record."""
        ...

    @property
    def without_gold(self) -> Sequence[str]:
        """Splits that give predictions, but no scores."""
        ...

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        ...
