"""Defaults of objectives are in `conf/` alone: in Python there is none that could say otherwise."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from idiomtune.plugins.registry import objective_types


def options(section: type[BaseModel], place: str) -> Iterator[tuple[str, bool]]:
    """Each option of a section and of those in it, and whether it must be given."""
    for name, field in section.model_fields.items():
        yield f"{place}.{name}", field.is_required()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from options(field.annotation, f"{place}.{name}")


@pytest.mark.parametrize("name", objective_types())
def test_no_option_of_an_objective_has_a_default_in_python(name: str) -> None:
    found = dict(options(objective_types()[name].options, "objective"))
    assert "objective.name" in found
    assert [option for option, is_required in found.items() if not is_required] == []
