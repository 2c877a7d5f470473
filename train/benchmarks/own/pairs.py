"""The user's own labelled pairs: does the cosine tell those that are alike from the others?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from train.benchmarks.own import OwnPairsOptions
from train.benchmarks.own.pair_files import read_labelled_pairs
from train.benchmarks.own.pair_scoring import OwnPairBenchmark
from train.benchmarks.pairs import average_precision, best_accuracy, best_f1, roc_auc


def build(_settings: Any, options: OwnPairsOptions) -> OwnPairBenchmark:
    """The benchmark on all named files."""
    files = [
        read_labelled_pairs(name, path, options.columns, options.instruction)
        for name, path in options.paths.items()
    ]
    return OwnPairBenchmark("own_pairs", files, separation, threshold="accuracy_threshold")


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
