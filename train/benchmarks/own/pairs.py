"""The user's own pairs of sentences, scored or labelled: the cosine of each pair, and metrics of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from train.benchmarks import Embed, Result
from train.benchmarks.own import Mode, OwnPairsOptions, OwnStsOptions, own_score
from train.benchmarks.own.fields import span_note
from train.benchmarks.own.pair_files import PairFile, read_labelled_pairs, read_scored_pairs
from train.benchmarks.pairs import (
    average_precision,
    best_accuracy,
    best_f1,
    cosines,
    pearson,
    roc_auc,
    spearman,
)
from train.requests import Request

# (predicted, gold) of all pairs → metric → value; NaN where it is not defined.
Metrics = Callable[[Sequence[float], Sequence[float]], dict[str, float]]


def build_scored(_settings: Any, options: OwnStsOptions) -> OwnPairBenchmark:
    """`own_sts` on all its files: does the model order pairs as their scores do?"""
    files = [
        read_scored_pairs(name, path, options.columns, options.instruction)
        for name, path in options.paths.items()
    ]
    return OwnPairBenchmark("own_sts", files, correlations)


def build_labelled(_settings: Any, options: OwnPairsOptions) -> OwnPairBenchmark:
    """`own_pairs` on all its files: does the cosine separate pairs that are alike from the others?"""
    files = [
        read_labelled_pairs(name, path, options.columns, options.instruction)
        for name, path in options.paths.items()
    ]
    return OwnPairBenchmark("own_pairs", files, separation, threshold="accuracy_threshold")


def correlations(predicted: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Spearman's and Pearson's; NaN where all predictions are equal."""
    values = {"spearman": spearman(predicted, gold), "pearson": pearson(predicted, gold)}
    return {name: math.nan if value is None else value for name, value in values.items()}


def separation(predicted: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Metrics of binary labels. F1 and accuracy are those of their best threshold on these very pairs."""
    f1, accuracy = best_f1(predicted, gold), best_accuracy(predicted, gold)
    return {
        "average_precision": average_precision(predicted, gold),
        "roc_auc": roc_auc(predicted, gold),
        "f1": f1.value,
        "f1_threshold": f1.threshold,
        "accuracy": accuracy.value,
        "accuracy_threshold": accuracy.threshold,
    }


class OwnPairBenchmark:
    """Metrics of the cosines of pairs, by whole sentences, and by spans if there are any.

    Args:
        name: first part of the score keys.
        files: from :mod:`train.benchmarks.own.pair_files`.
        metrics: of all pairs of a file.
        threshold: the metric whose value says from which prediction on a pair is taken as alike; the
            records then say which pairs are right.
    """

    without_gold: Sequence[str] = ()

    def __init__(
        self, name: str, files: Sequence[PairFile], metrics: Metrics, threshold: str | None = None
    ) -> None:
        self.name, self.data = name, list(files)
        self.files = [file.path for file in files]
        self._metrics, self._threshold = metrics, threshold

    @property
    def announced(self) -> list[Request]:
        """First and second sentences, by each mode."""
        return [
            request
            for file in self.data
            for mode in file.modes
            for side in _sides(file, mode)
            for request in side
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all files and modes."""
        result = Result()
        for file in self.data:
            gold = [pair.gold for pair in file.pairs]
            for mode in file.modes:
                first, second = _sides(file, mode)
                predicted = cosines(embed(first), embed(second))
                values = self._metrics(predicted, gold)
                result.scores.extend(own_score(self.name, file.name, mode, m, v) for m, v in values.items())
                for pair, cosine in zip(file.pairs, predicted, strict=True):
                    item = {
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
                        item["is_right"] = (cosine > values[self._threshold]) == (pair.gold == 1)
                    result.per_query.append(item)
            texts = (text for pair in file.pairs for text in (pair.first, pair.second))
            result.notes.extend(span_note(texts, "/".join(filter(None, (self.name, file.name, "span")))))
        return result


def _sides(file: PairFile, mode: Mode) -> tuple[list[Request], list[Request]]:
    first, second = (
        # documents have no instruction
        [text.request(mode, "document" if text.instruction is None else "query") for text in texts]
        for texts in ([pair.first for pair in file.pairs], [pair.second for pair in file.pairs])
    )
    return first, second
