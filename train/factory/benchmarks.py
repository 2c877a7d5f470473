"""The benchmarks: one function each, named in `_BUILDERS`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import get_args

from train.benchmarks import Benchmark
from train.benchmarks.admire import AdmireBenchmark
from train.benchmarks.epsilon import EpsilonBenchmark
from train.benchmarks.idiolink import IdioLinkBenchmark
from train.benchmarks.semeval2022 import SemEvalBenchmark
from train.config import Common
from train.data.ncimp import read_ncimp
from train.data.semeval2022 import read_pairs
from train.data.sources import idiolink_root
from train.errors import DataMissingError, UserError
from train.factory.data import admire_split, idiolink_split, ncimp_files, semeval_files
from train.scores import AdmireSplit, SemEvalSplit

log = logging.getLogger(__name__)


def build_benchmarks(
    settings: Common, names: Sequence[str] | None = None
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks, their data read and checked.

    Args:
        names: those to build; by default all. One that is named must be there.

    Returns:
        The benchmarks, and for each whose data is missing the reason why it is not scored.

    Raises:
        UserError: if data is wrong, or that of a named benchmark, or of all of them, is missing.
    """
    benchmarks: list[Benchmark] = []
    missing: dict[str, str] = {}
    for name in settings.benchmark.names if names is None else names:
        try:
            benchmarks.append(_BUILDERS[name](settings))
        except DataMissingError as error:
            if names is not None:
                raise
            missing[name] = str(error)
            log.warning("benchmark %s is NOT SCORED: %s", name, error)
    for benchmark in benchmarks:
        if benchmark.without_gold:
            splits = ", ".join(benchmark.without_gold)
            log.warning("%s has no gold on %s: predictions, no scores", benchmark.name, splits)
    if not benchmarks:
        raise UserError("no benchmark could be scored:\n" + "\n".join(missing.values()))
    return benchmarks, missing


def _idiolink_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.idiolink
    assert own is not None
    root = idiolink_root(settings.data.root, sample=settings.data.sample)
    splits = [idiolink_split(settings, root, name) for name in settings.splits("idiolink")]
    return IdioLinkBenchmark(
        *(splits, own.query_modes, own.bm25_modes, own.multivector_modes, own.window_words),
        diagnosis=own.diagnosis,
    )


def _semeval_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.semeval2022
    assert own is not None
    files = semeval_files(settings)
    wanted = settings.splits("semeval2022")
    splits = [read_pairs(files, name) for name in get_args(SemEvalSplit) if name in wanted]
    return SemEvalBenchmark(splits, own.setting)


def _epsilon_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.epsilon
    assert own is not None
    files = ncimp_files(settings)
    read = [read_ncimp(files, language) for language in dict.fromkeys(own.languages)]
    for of_language in read:
        log.info("%s", of_language.describe())
    return EpsilonBenchmark(read, own.classes, own.phrases, own.versions, own.orders, own.instruction)


def _admire_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.admire
    assert own is not None
    wanted = settings.splits("admire")
    splits = [admire_split(settings, name) for name in get_args(AdmireSplit) if name in wanted]
    return AdmireBenchmark(splits, own.modes)


_BUILDERS: dict[str, Callable[[Common], Benchmark]] = {
    "idiolink": _idiolink_benchmark,
    "semeval2022": _semeval_benchmark,
    "epsilon": _epsilon_benchmark,
    "admire": _admire_benchmark,
}
