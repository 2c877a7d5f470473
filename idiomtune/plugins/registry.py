"""Benchmarks, objectives and data sets by name: ours, and those of the user's own packages."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from idiomtune.errors import UserError
from idiomtune.plugins.benchmark import BenchmarkOptions, BenchmarkType
from idiomtune.plugins.dataset import FOLDER, DatasetType
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions, ObjectiveType
from idiomtune.plugins.score import Score, ScoreTable

Declaration = BenchmarkType | ObjectiveType | DatasetType

# Modules with a list DECLARED each. They import nothing heavy.
_SHIPPED = (
    "idiomtune.data.names",
    "idiomtune.benchmarks.idiolink",
    "idiomtune.benchmarks.semeval2022",
    "idiomtune.benchmarks.epsilon",
    "idiomtune.benchmarks.admire",
    "idiomtune.benchmarks.user",
    "idiomtune.objectives.idiolink",
    "idiomtune.objectives.triplets",
    "idiomtune.objectives.user_data",
    "idiomtune.objectives.mixture",
    "idiomtune.admire",
)
_by_decorator: list[BenchmarkType | ObjectiveType] = []
_added: dict[str, list[Declaration]] = {}  # by module

Options = TypeVar("Options", bound=type[ObjectiveOptions])
OfBenchmark = TypeVar("OfBenchmark", bound=type[BenchmarkOptions])


def benchmark(name: str, **facts: Any) -> Callable[[OfBenchmark], OfBenchmark]:
    """Declare a class of options as those of a benchmark, which its method `build` makes.

    Args:
        name, facts: as of :class:`~idiomtune.plugins.benchmark.BenchmarkType`; they replace those of the
            class (`facts`).
    """

    def declare(options: OfBenchmark) -> OfBenchmark:
        options.declared = BenchmarkType(name, options, **{**options.facts, **facts})
        _by_decorator.append(options.declared)
        return options

    return declare


def objective(name: str, **facts: Any) -> Callable[[Options], Options]:
    """Declare a class of options as those of an objective, which its method `build` makes.

    Args:
        name, facts: as of :class:`~idiomtune.plugins.objective.ObjectiveType`.
    """

    def declare(options: Options) -> Options:
        _by_decorator.append(ObjectiveType(name, options, **facts))
        return options

    return declare


def _declared_in(module: str) -> list[Declaration]:
    """The declarations of a module and its submodules, by decorators or in the list DECLARED."""
    imported = importlib.import_module(module)
    decorated = [entry for entry in _by_decorator if f"{entry.options.__module__}.".startswith(f"{module}.")]
    inside = list({(type(entry), entry.name): entry for entry in decorated}.values())  # a cell may run twice
    declared = getattr(imported, "DECLARED", [])
    kinds = ObjectiveType | DatasetType
    is_list = isinstance(declared, list | tuple) and all(isinstance(entry, kinds) for entry in declared)
    if not is_list or not (declared or inside):
        needed = "a @benchmark, an @objective, or a list DECLARED of ObjectiveType or DatasetType"
        cells = "; what a notebook or script declares goes into a module: extensions=[<module>]"
        raise UserError(
            f"extensions: {module} declares nothing usable: it needs {needed}{cells * (module == '__main__')}"
        )
    return [*declared, *(entry for entry in inside if entry not in declared)]


@cache
def _shipped_declarations() -> list[Declaration]:
    return [entry for module in _SHIPPED for entry in _declared_in(module)]


def _all_declarations() -> list[Declaration]:
    return [*_shipped_declarations(), *chain.from_iterable(_added.values())]


def benchmark_types() -> dict[str, BenchmarkType]:
    """All benchmarks by name, ours first."""
    return {entry.name: entry for entry in _all_declarations() if isinstance(entry, BenchmarkType)}


def objective_types() -> dict[str, ObjectiveType]:
    """All objectives by name, ours first."""
    return {entry.name: entry for entry in _all_declarations() if isinstance(entry, ObjectiveType)}


def dataset_types() -> dict[str, DatasetType]:
    """All data sets by name, ours first."""
    return {entry.name: entry for entry in _all_declarations() if isinstance(entry, DatasetType)}


def benchmark_type(name: str) -> BenchmarkType:
    """A benchmark by name; without metrics if its package is not loaded.

    Its scores are then errors if their names are those of errors elsewhere.
    """
    return benchmark_types().get(name) or _unknown(name)


@cache
def _unknown(name: str) -> BenchmarkType:
    lower = {m.name for b in benchmark_types().values() for m in b.metrics if m.better == "lower"}

    def refine(score: Score) -> Score:
        return score if lower.isdisjoint(str(score).split("/")) else replace(score, better="lower")

    return BenchmarkType(name, BenchmarkOptions, title=name, refine=refine)


def score_declaration(scores: Iterable[Score]) -> ScoreTable:
    """Scores with the facts that their benchmarks declare."""
    return ScoreTable(benchmark_type(score.benchmark).complete(score) for score in scores)


def is_data_path(option: str) -> bool:
    """Whether an option only says where data is, so that another value is the same run."""
    names = [
        f"benchmark.{b.name}.{name}" for b in benchmark_types().values() for name in b.options.data_options
    ]
    names += [dataset.setting for dataset in dataset_types().values()]
    is_in_one = any(f"{option}.".startswith(f"{name}.") for name in names)  # each of several has a name
    return is_in_one or FOLDER.fullmatch(option) is not None


def load_extensions(modules: Sequence[str]) -> None:
    """Import the user's modules, and register their declarations.

    Raises:
        UserError: if a module is not there, has no such list, or declares what there is already.
    """
    if modules and os.getcwd() not in sys.path:  # noqa: PTH109  a string, as the others are
        sys.path.append(os.getcwd())  # noqa: PTH109
    for module in modules:
        if module in _added and module != "__main__":  # whose cells may have run since
            continue
        _added.pop(module, None)
        if not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"extensions: {module!r} is not a module's name, such as my_package.my_module")
        try:
            declared = _declared_in(module)
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:  # whatever its code raises; a status that it exits with is not ours
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f"{module}.".startswith(f"{missing}."):
                message = f"extensions: {module} is not installed, nor in the current folder (or PYTHONPATH)"
                raise UserError(message) from error
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(f"extensions: {module} cannot be imported: {reason}") from error
        names = {(type(entry), entry.name) for entry in _all_declarations()}
        for entry in declared:
            if (type(entry), entry.name) in names:
                raise UserError(f"extensions: {module} declares {entry.name}, which exists: rename it")
        _added[module] = declared


def declarations_of(module: str) -> list[Declaration]:
    """The declarations of a user's module that is loaded."""
    return _added[module]


def resolve(declared: object) -> Any:
    """A part of a declaration, such as a function, given itself or as "module:name"."""
    if not isinstance(declared, str):
        return declared
    module, _, name = declared.partition(":")
    return getattr(importlib.import_module(module), name)


def build_objective(inputs: RunInputs, options: ObjectiveOptions) -> Any:
    """The objective of these options, its data read and checked."""
    return resolve(objective_types()[options.name].build)(inputs, options)


def _declared_options(value: object) -> object:
    if not isinstance(value, dict):
        return value
    types = objective_types()
    name = value.get("name")
    if not isinstance(name, str) or name not in types:
        raise ValueError(f"name must be one of {', '.join(map(repr, types))}, got {name!r}")
    return types[name].options.model_validate(value)


# Options of an objective, checked as the one of their `name` declares them.
ObjectiveSettings = Annotated[ObjectiveOptions, BeforeValidator(_declared_options)]
