"""What every section of the configuration is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def as_list(value: Any) -> Any:
    """A single name stands for a list of it."""
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A section of the configuration, with nothing in it but what is declared."""

    # Strict: `trainer.batch_size=true` or `seed="42"` is a slip, not a number.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
