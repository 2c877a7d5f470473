"""The user's own pairs of sentences: the cosine of each pair, and a metric of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from train.benchmarks import BenchmarkResult
from train.benchmarks.own import Mode, own_key
from train.benchmarks.own.fields import span_note
from train.benchmarks.own.pair_files import OwnPair, PairFile
from train.benchmarks.pairs import cosines
from train.requests import Request, Role

# (predicted, gold) of all pairs → metric → value; NaN where it is not defined.
Metrics = Callable[[Sequence[float], Sequence[float]], dict[str, float]]


class OwnPairBenchmark:
    """Metrics of the cosines of pairs, by whole sentences, and by spans where there are any.

    Args:
        name: first part of the score keys.
        files: from :mod:`train.benchmarks.own.pair_files`.
        metrics: of all pairs of a file.
        threshold: the metric whose value says from which prediction on a pair is taken as alike; the
            per-query records then say which pairs are right.
    """

    without_gold: Sequence[str] = ()

    def __init__(
        self, name: str, files: Sequence[PairFile], metrics: Metrics, threshold: str | None = None
    ) -> None:
        self.name = name
        self.data = list(files)
        self.files: list[Path] = [file.path for file in files]
        self._metrics = metrics
        self._threshold = threshold
        self.requests: list[Request] = []
        for file in files:
            for mode in file.modes:
                self.requests += [_request(pair, "first", mode) for pair in file.pairs]
                self.requests += [_request(pair, "second", mode) for pair in file.pairs]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        result = BenchmarkResult({})
        start = 0
        for file in self.data:
            num = len(file.pairs)
            for mode in file.modes:
                first, second = embeddings[start : start + num], embeddings[start + num : start + 2 * num]
                start += 2 * num
                self._score_mode(file, mode, cosines(first, second), result)
            texts = (text for pair in file.pairs for text in (pair.first, pair.second))
            result.notes.extend(span_note(texts, f"{self.name}/{file.name}/span"))
        return result

    def _score_mode(
        self, file: PairFile, mode: Mode, predicted: Sequence[float], result: BenchmarkResult
    ) -> None:
        values = self._metrics(predicted, [pair.gold for pair in file.pairs])
        result.scores.update({own_key(self.name, file.name, mode, m): value for m, value in values.items()})
        for pair, cosine in zip(file.pairs, predicted, strict=True):
            record = {
                "name": file.name,
                "mode": mode,
                "id": pair.id,
                "group": pair.group,
                "sentence1": pair.first.text,
                "sentence2": pair.second.text,
                "predicted": cosine,
                "gold": pair.gold,
            }
            if self._threshold is not None:
                record["is_right"] = (cosine > values[self._threshold]) == (pair.gold == 1)
            result.per_query.append(record)


def _request(pair: OwnPair, side: str, mode: Mode) -> Request:
    text = pair.first if side == "first" else pair.second
    role: Role = "document" if text.instruction is None else "query"  # documents have no instruction
    return text.request(mode, role)
