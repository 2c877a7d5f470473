"""From settings to objects: the one place where both are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from torch import nn

from idiomtune.benchmarks import Benchmark, build_benchmarks
from idiomtune.benchmarks.suite import check_dimensions
from idiomtune.config import Common
from idiomtune.data.own.load import forget_own_data
from idiomtune.declarations.registry import objective_types, resolve
from idiomtune.encoder.building import (
    build_encoder,
    check_model_options,
    embedding_width,
    idiom_expressions,
)
from idiomtune.encoder.device import Placement
from idiomtune.encoder.glossary import glossary_path, named_glossary
from idiomtune.encoder.loading import fetch_file, locate_checkpoint, resolve_model_path
from idiomtune.encoder.saved_expressions import without_transparent
from idiomtune.factory.mining import build_objective, own_revisions, without_mining
from idiomtune.objectives import Scored

__all__ = [
    "build_benchmarks",
    "build_encoder",
    "build_objective",
    "check_dimensions",
    "check_model_options",
    "embedding_width",
    "forget_own_data",
    "glossary_path",
    "idiom_expressions",
    "module_benchmarks",
    "named_glossary",
    "own_revisions",
    "resolve_model_path",
    "saved_modules",
    "without_mining",
    "without_transparent",
]


def module_benchmarks(
    settings: Common, modules: nn.Module | None, benchmarks: Sequence[Benchmark]
) -> list[Benchmark]:
    """The benchmarks of what an objective trains in addition to the encoder, in a mixture of its parts.

    A module is scored where the benchmark is to whose scores it adds.
    """
    names = {benchmark.name for benchmark in benchmarks}
    parts = modules.modules() if modules is not None else ()
    return [
        part.benchmark(settings) for part in parts if isinstance(part, Scored) and part.scored_by in names
    ]


def saved_modules(path: str, placement: Placement, revision: str | None = None) -> nn.Module | None:
    """The modules of an objective that were saved with a model, or None.

    Args:
        path: a folder, or the name of a model on the Hub.

    Raises:
        UserError: if they are damaged, or could not be downloaded.
    """
    name, offline = locate_checkpoint(path, revision)
    for files, load in {(tuple(one.saved), one.load) for one in objective_types().values() if one.saved}:
        first, *_ = [fetch_file(name, file, revision, local_files_only=offline) for file in files]
        if first is not None:
            folder = first.parents[len(PurePath(files[0]).parts) - 1]  # on the Hub, of what was downloaded
            modules: nn.Module = resolve(load)(folder, placement)
            return modules.to(placement.device)
    return None
