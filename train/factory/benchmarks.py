"""The benchmarks, built by the functions that they declare."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import get_args

from train.benchmarks import Benchmark, is_stated
from train.benchmarks.admire import AdmireBenchmarkOptions
from train.benchmarks.admire.scoring import AdmireBenchmark
from train.benchmarks.epsilon import EpsilonBenchmarkOptions
from train.benchmarks.epsilon.scoring import EpsilonBenchmark
from train.benchmarks.idiolink import IdioLinkBenchmarkOptions
from train.benchmarks.idiolink.scoring import IdioLinkBenchmark
from train.benchmarks.semeval2022 import SemEvalBenchmarkOptions
from train.benchmarks.semeval2022.scoring import SemEvalBenchmark
from train.config import Common
from train.data import ncimp, semeval2022
from train.data.names import AdmireSplit, SemEvalSplit
from train.data.ncimp import read_ncimp
from train.data.semeval2022 import read_pairs
from train.declarations.registry import benchmark_type, resolve
from train.errors import DataMissingError, UserError
from train.factory.data import admire_split, data_files, idiolink_folder, idiolink_split

log = logging.getLogger(__name__)


def build_benchmarks(
    settings: Common, names: Sequence[str] | None = None
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks, their data read and checked.

    Args:
        names: those to build, whose data must be there; by default all.

    Returns:
        The benchmarks, and for each benchmark whose data is missing the reason why it is not scored.

    Raises:
        UserError: if data is wrong, or is missing for a named benchmark, or for all benchmarks.
    """
    benchmarks: list[Benchmark] = []
    missing: dict[str, str] = {}
    for name in settings.benchmark.names if names is None else names:
        try:
            build = resolve(benchmark_type(name).build)
            benchmark = build(settings, settings.benchmark.sections[name])
        except DataMissingError as error:
            if names is not None:
                raise
            missing[name] = str(error)
            log.warning("benchmark %s is NOT SCORED: %s", name, error)
            continue
        benchmarks.append(benchmark)
        if is_stated(benchmark):
            log.warning("benchmark %s: `requests` is the earlier contract: docs/adding-a-benchmark.md", name)
        if benchmark.without_gold:
            splits = ", ".join(benchmark.without_gold)
            log.warning("%s has no gold on %s: predictions, no scores", benchmark.name, splits)
    if not benchmarks:
        raise UserError("no benchmark could be scored:\n" + "\n".join(missing.values()))
    return benchmarks, missing


def idiolink_benchmark(settings: Common, options: IdioLinkBenchmarkOptions) -> Benchmark:
    """IdioLink on its splits, or on what a fold scores."""
    root = idiolink_folder(settings)
    splits = [idiolink_split(settings, root, name) for name in settings.splits("idiolink")]
    return IdioLinkBenchmark(splits, options)


def semeval_benchmark(settings: Common, options: SemEvalBenchmarkOptions) -> Benchmark:
    """SemEval-2022 Task 2B on its splits."""
    files = data_files(settings, semeval2022.FILES)
    wanted = settings.splits("semeval2022")
    splits = [read_pairs(files, name) for name in get_args(SemEvalSplit) if name in wanted]
    return SemEvalBenchmark(splits, options)


def epsilon_benchmark(settings: Common, options: EpsilonBenchmarkOptions) -> Benchmark:
    """ε-compositionality in the chosen languages."""
    files = data_files(settings, ncimp.FILES)
    data = [read_ncimp(files, language) for language in dict.fromkeys(options.languages)]
    for read in data:
        log.info("%s", read.describe())
    return EpsilonBenchmark(data, options)


def admire_benchmark(settings: Common, options: AdmireBenchmarkOptions) -> Benchmark:
    """AdMIRe on its splits, by captions."""
    wanted = settings.splits("admire")
    splits = [admire_split(settings, name) for name in get_args(AdmireSplit) if name in wanted]
    return AdmireBenchmark(splits, options.modes)
