"""Base class and types of the sections of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def as_list(value: object) -> Any:
    """A list; a single name becomes a list of it."""
    return [value] if isinstance(value, str) else value


def _numbers(value: object) -> object:
    return [value] if isinstance(value, int) else value


def _are_different(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError(f"names one twice: {values}")
    return values


def or_empty(value: object) -> object:
    """Null as an empty mapping: over a default of `{}`, Hydra refuses any entry as unknown."""
    return {} if value is None else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError(f"must not be empty, got {value!r}")
    return value


Text = Annotated[str, AfterValidator(_not_blank)]
Names = Annotated[list[Text], BeforeValidator(as_list), Field(min_length=1)]
# A value beyond these is a typo, and would fail later, and less clearly.
Count = Annotated[int, Field(gt=0, le=2**31 - 1)]
Dimensions = Annotated[list[Count], BeforeValidator(_numbers), AfterValidator(_are_different)]
CountFromZero = Annotated[int, Field(ge=0, le=2**31 - 1)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Temperature = Annotated[float, Field(ge=1e-4, le=1e4)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class NoEffect:
    """In a field's annotation: the option makes no other run, whatever its value."""


class ConfigSection(BaseModel):
    """A section of the configuration, with nothing in it but what is declared."""

    # Strict: `trainer.batch_size=true` or `seed="42"` is a typo, not a number.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def without_effect(cls) -> list[str]:
        """Options, and whole sections, that make no other run."""
        names: list[str] = []
        for name, field in cls.model_fields.items():
            if NoEffect in field.metadata:
                names.append(name)
            elif isinstance(field.annotation, type) and issubclass(field.annotation, ConfigSection):
                names += [f"{name}.{inner}" for inner in field.annotation.without_effect()]
        return names

    def problems(self) -> Iterator[str]:
        """Conflicts between options that are valid by themselves; the first one is reported."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for problem in self.problems():
            raise ValueError(problem)
        return self
