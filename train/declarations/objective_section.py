"""Options of an objective, checked as the one of their `name` declares them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from train.declarations.objective import ObjectiveOptions
from train.declarations.options import located
from train.declarations.registry import objective_types


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


ObjectiveSettings = Annotated[ObjectiveOptions, BeforeValidator(_declared_options)]
