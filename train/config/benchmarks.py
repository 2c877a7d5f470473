"""The section `benchmark`: the chosen benchmarks, each with the options that it declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, RootModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from train.declarations.benchmark import BenchmarkOptions
from train.declarations.options import as_list, located
from train.declarations.registry import benchmark_types


def _sections(value: Any) -> Any:
    """Each section as the class that its benchmark declares.

    An experiment may set options of a benchmark that is not chosen; such a section has no name.
    """
    if not isinstance(value, dict):
        return value
    known = benchmark_types()
    checked: dict[str, BenchmarkOptions] = {}
    problems: list[InitErrorDetails] = []
    for name, section in value.items():
        if isinstance(section, BenchmarkOptions):
            checked[name] = section
        elif name not in known:
            what = PydanticCustomError("extra_forbidden", "there is no such benchmark")
            problems.append(InitErrorDetails(type=what, loc=(name,), input=section))
        elif not isinstance(section, dict) or "name" in section:
            try:
                checked[name] = known[name].options.model_validate(section)
            except ValidationError as error:
                problems += located(error, name)
    if problems:
        raise ValidationError.from_exception_data("benchmark", problems)
    if not checked:
        raise ValueError(f"choose one or more: benchmark=[{', '.join(known)}]")
    # In the order of the declarations.
    return {name: checked[name] for name in known if name in checked}


class BenchmarkSettings(RootModel[Annotated[dict[str, BenchmarkOptions], BeforeValidator(_sections)]]):
    """The benchmarks that `benchmark=[...]` chose."""

    @property
    def sections(self) -> dict[str, BenchmarkOptions]:
        """Name → options of the chosen benchmarks."""
        return self.root

    @property
    def names(self) -> list[str]:
        """The names of the chosen benchmarks."""
        return list(self.root)

    def splits(self, name: str, wanted: Sequence[str]) -> list[str]:
        """Those of the splits `wanted` that this benchmark has, else its options'; [] if it is not chosen."""
        section = self.root.get(name)
        if section is None:
            return []
        others = {s for other in self.root.values() if other is not section for s in other.known_splits}
        found = [
            split
            for split in dict.fromkeys(wanted)
            if split in section.known_splits or (section.has_others and split not in others)
        ]
        return found or section.default_splits


def _is_benchmark(name: str) -> str:
    names = [repr(known) for known in benchmark_types()]
    if repr(name) not in names:
        raise ValueError(f"must be one of {', '.join(names[:-1])} or {names[-1]}, got {name!r}")
    return name


BenchmarkNames = Annotated[
    list[Annotated[str, AfterValidator(_is_benchmark)]], BeforeValidator(as_list), Field(min_length=1)
]
