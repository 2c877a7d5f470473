"""Benchmarks, objectives and data sets by name: ours, and those of the user's own packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ValidationError

from train.declarations.benchmark import BenchmarkOptions, BenchmarkType
from train.declarations.dataset import DatasetType
from train.declarations.dimensions import dimension_of, full_key
from train.declarations.objective import ObjectiveOptions, ObjectiveType
from train.declarations.options import located
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
    "train.objectives.idiolink",
    "train.objectives.adaptive_triplet",
    "train.objectives.own",
    "train.objectives.mixture",
    "train.admire",
)
_by_decorator: list[ObjectiveType] = []
_added: dict[str, list[Declaration]] = {}  # by module

Options = TypeVar("Options", bound=type[ObjectiveOptions])


def objective(
    name: str, *, datasets: Callable[[Mapping[str, Any]], Sequence[str]] | None = None, **facts: Any
) -> Callable[[Options], Options]:
    """Declare a class of options as those of an objective, which its method `build` makes.

    Args:
        name, datasets, facts: as of :class:`~train.declarations.objective.ObjectiveType`.
    """

    def declare(options: Options) -> Options:
        _by_decorator.append(ObjectiveType(name, options, _build, datasets, **facts))
        return options

    return declare


def _build(settings: Any, options: ObjectiveOptions) -> Any:
    return options.build(settings)


def _declared_in(module: str) -> list[Declaration]:
    """What a module, or one that is part of it, has declared by a decorator or in its list DECLARED."""
    imported = importlib.import_module(module)
    inside = [one for one in _by_decorator if f"{one.options.__module__}.".startswith(f"{module}.")]
    declared = getattr(imported, "DECLARED", inside)
    if not isinstance(declared, list | tuple) or not all(isinstance(one, Declaration) for one in declared):
        raise UserError(f"extensions: {module}: DECLARED must be a list of declarations")
    if not declared and not inside:
        raise UserError(
            f"extensions: {module} declares nothing: it needs an @objective, or a list DECLARED of "
            "BenchmarkType, ObjectiveType or DatasetType"
        )
    return [*declared, *(one for one in inside if one not in declared)]


@cache
def _ours() -> list[Declaration]:
    return [one for module in _OURS for one in _declared_in(module)]


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
            raise UserError(f"extensions: {module!r} is not a module's name, such as my_package.my_module")
        try:
            declared = _declared_in(module)
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:  # whatever its code raises; a status that it exits with is not ours
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f"{module}.".startswith(f"{missing}."):
                raise UserError(
                    f"extensions: {module} is not installed, and is not in the current folder (or PYTHONPATH)"
                ) from error
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(f"extensions: {module} cannot be imported: {why}") from error
        names = {(type(one), one.name) for one in _all()}
        for one in declared:
            if (type(one), one.name) in names:
                raise UserError(f"extensions: {module} declares {one.name}, which exists already: rename it")
        _added[module] = declared


def resolve(declared: Any) -> Any:
    """What a declaration has, or names as "module:name", such as a function."""
    if not isinstance(declared, str):
        return declared
    module, _, name = declared.partition(":")
    return getattr(importlib.import_module(module), name)


def build_objective(settings: Any, options: ObjectiveOptions) -> Any:
    """The objective of these options, its data read and checked.

    Args:
        settings: :class:`train.config.TrainSettings`.
    """
    return resolve(objective_types()[options.name].build)(settings, options)


def _declared_options(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known = objective_types()
    name = value.get("name")
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"name must be one of {', '.join(map(repr, known))}, got {name!r}")
    try:
        return known[name].options.model_validate(value)
    except ValidationError as error:
        raise ValidationError.from_exception_data("objective", located(error)) from None


# Options of an objective, checked as the one of their `name` declares them.
ObjectiveSettings = Annotated[ObjectiveOptions, BeforeValidator(_declared_options)]


def _unknown(_settings: Any, options: Any) -> Any:
    raise UserError(f"benchmark {options.name} is not known: name its module with extensions=[<module>]")
