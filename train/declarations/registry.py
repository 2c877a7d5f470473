"""Benchmarks, objectives and data sets by name: ours, and those of the user's own packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Literal

from train.declarations.benchmark import BenchmarkOptions, BenchmarkType
from train.declarations.dataset import DatasetType
from train.declarations.dimensions import dimension_of, full_key
from train.declarations.objective import ObjectiveType
from train.declarations.own_data import PLACE
from train.errors import UserError

Declaration = BenchmarkType | ObjectiveType | DatasetType
Verdict = Literal["better", "worse", ""]

# Modules with a list DECLARED each. They import nothing heavy.
_OURS = (
    "train.data.datasets",
    "train.benchmarks.idiolink",
    "train.benchmarks.semeval2022",
    "train.benchmarks.epsilon",
    "train.benchmarks.admire",
    "train.benchmarks.own",
    "train.benchmarks.mteb",
    "train.objectives.declared",
    "train.admire",
)
_added: dict[str, list[Declaration]] = {}  # by module


@cache
def _ours() -> list[Declaration]:
    return [one for module in _OURS for one in importlib.import_module(module).DECLARED]


def _all() -> list[Declaration]:
    return [*_ours(), *chain.from_iterable(_added.values())]


def benchmark_types() -> dict[str, BenchmarkType]:
    """All benchmarks by name, ours first."""
    return {one.name: one for one in _all() if isinstance(one, BenchmarkType)}


def objective_types() -> dict[str, ObjectiveType]:
    """All objectives by name, ours first."""
    return {one.name: one for one in _all() if isinstance(one, ObjectiveType)}


def dataset_types() -> dict[str, DatasetType]:
    """All data sets by name, ours first."""
    return {one.name: one for one in _all() if isinstance(one, DatasetType)}


def benchmark_type(name: str) -> BenchmarkType:
    """A benchmark by name; one that is not known here (of somebody's own package) as a plain one.

    Of that, scores are errors whose names are those of errors elsewhere.
    """
    known = benchmark_types()
    if name in known:
        return known[name]
    errors = frozenset[str]().union(*(one.smaller_is_better for one in known.values()))
    return BenchmarkType(name, BenchmarkOptions, _unknown, title=name, smaller_is_better=errors)


def benchmark_of(key: str) -> BenchmarkType:
    """The benchmark that a score is of."""
    return benchmark_type(key.partition("/")[0])


def split_of(key: str) -> str:
    """The split that a score is of; "" where its benchmark has none."""
    return key.split("/")[1] if benchmark_of(key).has_splits and key.count("/") > 1 else ""


def is_headline(key: str) -> bool:
    """Whether a score stands in the model card; one of cut embeddings does not."""
    return dimension_of(key) is None and benchmark_of(key).is_headline(key)


def is_compared(key: str) -> bool:
    """Whether models are compared by a score; not by one of cut embeddings."""
    return dimension_of(key) is None and benchmark_of(key).is_compared(key)


def is_curve(key: str) -> bool:
    """Whether a score is drawn over the steps of a run; one of cut embeddings is not."""
    return dimension_of(key) is None and benchmark_of(key).is_curve(key)


def smaller_is_better(key: str) -> bool:
    """Whether a score counts errors or ranks; of all others the greater is the better."""
    return not benchmark_of(key).smaller_is_better.isdisjoint(key.split("/"))


def judge(key: str, change: float) -> Verdict:
    """Whether a change of a score is for the better; nothing of a fact, or where nothing changed."""
    if not change or benchmark_of(key).is_fact(full_key(key)):
        return ""
    return "worse" if (change > 0) == smaller_is_better(key) else "better"


def is_place(option: str) -> bool:
    """Whether an option says where data lies, which makes no other run."""
    if option.startswith("benchmark."):
        places = (
            f"benchmark.{b.name}.{place}" for b in benchmark_types().values() for place in b.options.places
        )
        return any(f"{option}.".startswith(f"{place}.") for place in places)  # each of several has a name
    if PLACE.fullmatch(option):
        return True
    return any(option == dataset.setting for dataset in dataset_types().values())


def load_extensions(modules: Sequence[str]) -> None:
    """Import the user's own modules, and take up what each has in its list `DECLARED`.

    Raises:
        UserError: if a module is not there, has no such list, or declares what there is already.
    """
    for module in modules:
        if module in _added:
            continue
        if not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"extensions: {module!r} is no name of a module, as my_package.my_module")
        try:
            imported = importlib.import_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever its code raises; a status that it exits with is not ours
            name = error.name if isinstance(error, ModuleNotFoundError) else None
            if name is None or not f"{module}.".startswith(f"{name}."):
                said = f"{type(error).__name__}: {error}".rstrip(": ")
                raise UserError(f"extensions: {module} cannot be imported: {said}") from error
            raise UserError(
                f"extensions: there is no module {module}. It must be installed, or lie where the command is "
                "started (or in PYTHONPATH)"
            ) from None
        declared = getattr(imported, "DECLARED", None)
        if not isinstance(declared, list | tuple) or not all(isinstance(d, Declaration) for d in declared):
            raise UserError(
                f"extensions: {module} has no list DECLARED of BenchmarkType, ObjectiveType or DatasetType"
            )
        names = {(type(one), one.name) for one in _all()}
        for one in declared:
            if (type(one), one.name) in names:
                raise UserError(
                    f"extensions: {module} declares {one.name}, which there is already: rename it"
                )
        _added[module] = list(declared)


def resolve(declared: Any) -> Any:
    """What a declaration has, or names as "module:name", such as a function."""
    if not isinstance(declared, str):
        return declared
    module, _, name = declared.partition(":")
    return getattr(importlib.import_module(module), name)


def _unknown(_settings: Any, options: Any) -> Any:
    raise UserError(f"benchmark {options.name} is not known: name its module with extensions=[<module>]")
