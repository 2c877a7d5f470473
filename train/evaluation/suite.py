"""The shared evaluation hook: embed every distinct text once, score every benchmark."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train.benchmarks import Benchmark, BenchmarkResult, Corpus, Distributions
from train.declarations.dimensions import at_dimension
from train.declarations.registry import benchmark_of
from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.parallel import embed_all
from train.encoder.spans import cut_spans_note
from train.errors import UserError
from train.evaluation.corpora import embedded
from train.evaluation.kept_embeddings import keep_embeddings, kept_file, read_embeddings
from train.io.progress import progress_bar
from train.io.vectors import VectorStore
from train.requests import Request

log = logging.getLogger(__name__)

_EQUAL = 1e-6  # of the largest number in an embedding: rounding differs by more where texts do


@dataclass(frozen=True)
class Scorecard:
    """Scores of one checkpoint on all benchmarks.

    Attributes:
        scores: flat key → finite number; each benchmark names its own (`train/benchmarks/<name>/keys.py`).
        per_query: benchmark → one record a query and mode, as JSON can hold it.
        maps: benchmark → likewise one record for each group of texts: where they lie.
        predictions: file name → text, in the form in which a task takes them.
        plots: name → what to draw.
        notes: how to read the scores, a sentence each.
        seconds: wall time, and of it the encoder's.
        num_texts: distinct texts that were embedded.
        undefined: flat key → NaN or an infinity, for scores that a benchmark could not give. JSON has no such
            numbers, and no comparison with them means anything, so they are kept out of `scores`.
    """

    scores: dict[str, float]
    per_query: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    maps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    plots: dict[str, Distributions] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    num_texts: int = 0
    undefined: dict[str, float] = field(default_factory=dict)


class Suite:
    """All benchmarks that every checkpoint is scored on.

    Args:
        benchmarks: each states its requests; equal requests of several benchmarks are embedded once.
            Several may have one name (that of a dataset), under which their results stand together.
        processes: that share the texts; the main one scores. The others get the scores, and none of what is
            only written to files: records by query, maps, predictions and plots.
        dimensions: the same embeddings cut to so many leading dimensions are scored too, with keys that end
            in `/dim=<n>`; scores alone, and of benchmarks that hold no module of the full width.
        keep_stores: leave the embeddings of corpora that are kept in files where they are; else they are
            deleted once they are scored, as those of a checkpoint, which no other model has.
    """

    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        processes: Processes | None = None,
        dimensions: Sequence[int] = (),
        *,
        keep_stores: bool = False,
    ) -> None:
        self.benchmarks = list(benchmarks)
        self._keep_stores = keep_stores
        self.dimensions = list(dimensions)
        self._processes = processes or Processes()

    def run(self, encoder: Encoder, only: Sequence[str] | None = None, *, keep: bool = False) -> Scorecard:
        """Score `encoder` as it stands (in evaluation mode, in float32, without gradient).

        Args:
            encoder: left in the mode in which it came.
            only: names of benchmarks to run; by default all.
            keep: take the embeddings from the user's cache, where they are kept from now on.

        Raises:
            UserError: if an embedding is not finite (its ranks would look like a score), or a benchmark gives
                what is no score; if embeddings have no more dimensions than they are to be cut to.
        """
        start = time.perf_counter()
        chosen = [b for b in self.benchmarks if only is None or b.name in only]
        requests = [request for b in chosen for request in b.requests]
        num_texts = len({encoder.prompts.render(request)[0] for request in requests})
        was_training = encoder.training
        encoder.eval()
        with ExitStack() as held:
            try:
                embed = self._kept if keep else self._embed
                embeddings = embed(encoder, requests, num_texts)
                stores = [
                    [held.enter_context(self._stored(corpus, encoder)) for corpus in _corpora(benchmark)]
                    for benchmark in chosen
                ]
            finally:
                encoder.train(was_training)
            num_texts += sum(corpus.size for benchmark in chosen for corpus in _corpora(benchmark))
            remarks = _remarks(encoder, requests, embeddings)
            with torch.autocast("cpu", enabled=False):  # a lower precision is the model's alone
                return self._scored_by_main(
                    lambda: self._score(chosen, embeddings, stores, start, num_texts, remarks)
                )

    def _stored(self, corpus: Corpus, encoder: Encoder) -> AbstractContextManager[VectorStore]:
        return embedded(corpus, encoder, self._processes, keep=self._keep_stores)

    def _embed(self, encoder: Encoder, requests: Sequence[Request], num_texts: int) -> Tensor:
        """(R, D), in float32, on the CPU."""
        with progress_bar("scoring", num_texts) as advance:
            return embed_all(encoder, requests, self._processes, advance).float().cpu()

    def _kept(self, encoder: Encoder, requests: Sequence[Request], num_texts: int) -> Tensor:
        """The same, from the cache if they are there; then only the main process, which scores, has rows."""
        processes = self._processes
        path = processes.from_main(lambda: kept_file(encoder, requests, processes.count))
        if path is None:
            return self._embed(encoder, requests, num_texts)
        found = read_embeddings(path, encoder, requests) if processes.is_main else None
        if processes.any(found is not None):
            return torch.zeros(0, encoder.dimension) if found is None else found
        embeddings = self._embed(encoder, requests, num_texts)
        if processes.is_main:
            keep_embeddings(path, encoder, requests, embeddings)
        return embeddings

    def _scored_by_main(self, score: Callable[[], Scorecard]) -> Scorecard:
        whole: list[Scorecard] = []

        def shared() -> Scorecard:
            whole.append(score())
            return replace(whole[0], per_query={}, maps={}, predictions={}, plots={})

        scorecard = self._processes.from_main(shared)
        return whole[0] if whole else scorecard

    def _score(
        self,
        chosen: Sequence[Benchmark],
        embeddings: Tensor,
        stores: Sequence[Sequence[VectorStore]],
        start: float,
        num_texts: int,
        remarks: Sequence[str],
    ) -> Scorecard:
        embedded = time.perf_counter()
        if not embeddings.isfinite().all():
            raise UserError(
                "the model gives embeddings that are not finite (NaN or infinite): its weights are "
                "broken, or the precision is too low for it (precision=fp32 is the safe one)"
            )

        for size in self.dimensions:
            if size >= embeddings.shape[1]:
                raise too_few_dimensions(size, embeddings.shape[1])

        card = Scorecard({}, notes=list(remarks), encoder_seconds=embedded - start, num_texts=num_texts)
        given_by: dict[str, str] = {}
        lengths = [sum(map(len, {request.text for request in b.requests})) for b in chosen]
        first, times = 0, []
        for benchmark, of_benchmark, length in zip(chosen, stores, lengths, strict=True):
            began = time.perf_counter()
            rows = embeddings[first : first + len(benchmark.requests)]  # (N, D)
            result = _result(benchmark, rows, of_benchmark)
            when_cut = self._scores_when_cut(benchmark, rows, of_benchmark)
            result = replace(result, scores={**result.scores, **when_cut})
            first += len(benchmark.requests)
            # One pass embeds the texts of all: its time is shared out by their length.
            seconds = time.perf_counter() - began + (embedded - start) * length / max(sum(lengths), 1)
            times.append(f"{benchmark.name} {seconds:.1f} s")
            checked = _checked_scores(benchmark.name, result, given_by)
            given_by |= dict.fromkeys(checked, benchmark.name)
            for kept, given in ((card.per_query, result.per_query), (card.maps, result.maps)):
                records = [_as_json(benchmark.name, record) for record in given]
                kept.setdefault(benchmark.name, []).extend(records)
            card.predictions.update(result.predictions)
            card.plots.update(result.plots)
            card.notes.extend(result.notes)
            for key, value in checked.items():
                (card.scores if math.isfinite(value) else card.undefined)[key] = value
        log.info("scored %d texts: %s", num_texts, ", ".join(times))
        for key, value in card.undefined.items():
            log.warning("benchmark %s: %s is %s, which is no score: left out", given_by[key], key, value)
            card.notes.append(f"{key} is {value}, which is no score: left out.")
        return replace(card, seconds=time.perf_counter() - start)

    def _scores_when_cut(
        self, benchmark: Benchmark, rows: Tensor, stores: Sequence[VectorStore]
    ) -> dict[str, float]:
        """Its scores on the first dimensions of `rows` (N, D), at each size."""
        if getattr(benchmark, "takes_whole_embeddings", False):
            return {}
        return {
            at_dimension(key, size): value
            for size in self.dimensions
            for key, value in _result(
                benchmark, rows[:, :size], [store.cut(size) for store in stores]
            ).scores.items()
            if not (isinstance(key, str) and benchmark_of(key).is_constant(key))
        }


def _corpora(benchmark: Benchmark) -> Sequence[Corpus]:
    """The documents that it wants in files."""
    corpora: Sequence[Corpus] = getattr(benchmark, "corpora", ())
    return corpora


def _result(benchmark: Any, rows: Tensor, stores: Sequence[VectorStore]) -> BenchmarkResult:
    result: BenchmarkResult = benchmark.score(rows, stores) if stores else benchmark.score(rows)
    return result


def too_few_dimensions(size: int, width: int) -> UserError:
    """The error for embeddings that cannot be cut."""
    return UserError(
        f"embeddings of {width} dimensions cannot be cut to {size}: name fewer (the full embedding is always "
        "trained and scored) in trainer.matryoshka, eval.dimensions or dimensions"
    )


def _checked_scores(name: str, result: BenchmarkResult, given_by: Mapping[str, str]) -> dict[str, float]:
    """A benchmark's scores as plain numbers, which may not be finite.

    Raises:
        UserError: if a key is no string or was given before, or a score is no number.
    """
    checked: dict[str, float] = {}
    for key, value in result.scores.items():
        if not isinstance(key, str) or "/" not in key:
            raise UserError(
                f"benchmark {name}: the key {key!r} of a score is not of the form {name}/accuracy"
            )
        if key in given_by:
            raise UserError(
                f"benchmark {name}: it gives the score {key!r}, and so does "
                f"{'another benchmark of this name' if given_by[key] == name else given_by[key]}: "
                "rename one of them"
            )
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UserError(
                f"benchmark {name}: the score {key!r} is {value!r}, a {type(value).__name__}: give a number, "
                "of a tensor its .item()"
            )
        checked[key] = number
    return checked


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
        f"benchmark {name}: a per-query record holds {value!r}, a {type(value).__name__}, which JSON cannot: "
        "give numbers, strings, lists and dicts"
    )


def _remarks(encoder: Encoder, requests: Sequence[Request], embeddings: Tensor) -> list[str]:
    """What puts all scores in doubt."""
    remarks = []
    if len(embeddings) > 1 and len({request.text for request in requests}) > 1:
        spread = embeddings.amax(0) - embeddings.amin(0)
        if spread.max() <= _EQUAL * embeddings.abs().max():
            remarks.append(
                f"ALL {len(embeddings)} EMBEDDINGS ARE EQUAL, whatever the text: the scores mean nothing. "
                "The model's weights are broken, or it was trained until nothing was left (too high a "
                "trainer.learning_rate)"
            )
            log.warning("%s", remarks[-1])
    spans = {request for request in requests if request.pooling == "span"}
    if num_cut := len(spans & encoder.cut_spans):
        remarks.append(cut_spans_note(num_cut, len(spans), encoder.model.max_seq_length))
    return remarks
