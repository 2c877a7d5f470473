"""The shared evaluation hook: embed every distinct text once, score every benchmark."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from train.benchmarks import Benchmark, Distributions
from train.embedding import embed_all
from train.encoder import Encoder
from train.errors import UserError
from train.passes import cut_spans_note
from train.processes import Processes
from train.progress import progress_bar
from train.prompts import Request

log = logging.getLogger(__name__)

_EQUAL = 1e-6  # of the largest number in an embedding: rounding differs by more where texts do


@dataclass(frozen=True)
class Scorecard:
    """Scores of one checkpoint on all benchmarks.

    Attributes:
        scores: flat key → number, see :mod:`train.scorekeys`.
        per_query: benchmark → one record a query and mode.
        predictions: file name → text, in the form in which a task takes them.
        plots: name → what to draw.
        notes: how to read the scores, a sentence each.
        seconds: wall time, and of it the encoder's.
        num_texts: distinct texts that were embedded.
    """

    scores: dict[str, float]
    per_query: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    plots: dict[str, Distributions] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    num_texts: int = 0


class Suite:
    """All benchmarks that every checkpoint is scored on.

    Args:
        benchmarks: each states its requests; equal requests of several benchmarks are embedded once.
            Several may have one name (that of a dataset), under which their results stand together.
        processes: that share the texts; the main one scores, and all have the scorecard.
    """

    def __init__(self, benchmarks: Sequence[Benchmark], processes: Processes | None = None) -> None:
        self.benchmarks = list(benchmarks)
        self._processes = processes or Processes()

    def run(self, encoder: Encoder, only: Sequence[str] | None = None) -> Scorecard:
        """Score `encoder` as it stands (in evaluation mode, in float32, without gradient).

        Args:
            encoder: left in the mode in which it came.
            only: names of benchmarks to run; by default all.

        Raises:
            UserError: if an embedding is not finite: its ranks would look like a score.
        """
        start = time.perf_counter()
        chosen = [b for b in self.benchmarks if only is None or b.name in only]
        requests = [request for b in chosen for request in b.requests]
        num_texts = len({encoder.prompts.render(request)[0] for request in requests})
        was_training = encoder.training
        encoder.eval()
        try:
            with progress_bar("scoring", num_texts) as advance:
                embeddings = embed_all(encoder, requests, self._processes, advance)
        finally:
            encoder.train(was_training)
        embeddings = embeddings.float().cpu()
        remarks = _remarks(encoder, requests, embeddings)
        with torch.autocast("cpu", enabled=False):  # a lower precision is the model's, not the similarities'
            return self._processes.from_main(
                lambda: self._score(chosen, embeddings, start, num_texts, remarks)
            )

    def _score(
        self,
        chosen: Sequence[Benchmark],
        embeddings: Tensor,
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

        scores: dict[str, float] = {}
        per_query: dict[str, list[dict[str, Any]]] = {}
        predictions: dict[str, str] = {}
        plots: dict[str, Distributions] = {}
        notes: list[str] = list(remarks)
        at = 0
        lengths = [sum(map(len, {request.text for request in b.requests})) for b in chosen]
        times = []
        for benchmark, length in zip(chosen, lengths, strict=True):
            began = time.perf_counter()
            result = benchmark.score(embeddings[at : at + len(benchmark.requests)])
            at += len(benchmark.requests)
            # One pass embeds the texts of all: its time is shared out by their length.
            seconds = time.perf_counter() - began + (embedded - start) * length / max(sum(lengths), 1)
            times.append(f"{benchmark.name} {seconds:.1f} s")
            scores |= result.scores
            per_query.setdefault(benchmark.name, []).extend(result.per_query)
            predictions |= result.predictions
            plots |= result.plots
            notes += result.notes
        log.info("scored %d texts: %s", num_texts, ", ".join(times))
        return Scorecard(
            scores,
            per_query,
            predictions,
            plots,
            notes,
            seconds=time.perf_counter() - start,
            encoder_seconds=embedded - start,
            num_texts=num_texts,
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
