"""The user's own scored pairs: does the model order them as the scores do?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from train.benchmarks.own import OwnStsOptions
from train.benchmarks.own.pair_files import read_scored_pairs
from train.benchmarks.own.pair_scoring import OwnPairBenchmark
from train.benchmarks.pairs import pearson, spearman


def build(_settings: Any, options: OwnStsOptions) -> OwnPairBenchmark:
    """The benchmark on all named files."""
    files = [
        read_scored_pairs(name, path, options.columns, options.instruction)
        for name, path in options.paths.items()
    ]
    return OwnPairBenchmark("own_sts", files, correlations)


def correlations(predicted: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Spearman's and Pearson's; NaN where all predictions are equal."""
    values = {"spearman": spearman(predicted, gold), "pearson": pearson(predicted, gold)}
    return {name: math.nan if value is None else value for name, value in values.items()}
