"""The section `model`."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt, field_validator

from train.settings.base import Section


class ModelSettings(Section):
    path: str
    revision: str | None
    pooling: str | None
    max_length: PositiveInt | None
    query_prompt: str | None
    document_prompt: str | None
    instruction_prompt: str | None
    trust_remote_code: bool
    tokens_per_forward: PositiveInt | None
    idiom_tokens: str | list[str] | None
    replace_expressions: bool | None

    @field_validator("idiom_tokens", mode="before")
    @classmethod
    def _expressions(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"must be train, a list of expressions, or a text file of them, got {value!r}")
        for expression in value:
            if not isinstance(expression, str) or not any(c.isalnum() for c in expression):
                raise ValueError(f"{expression!r} holds no letter: it is no expression")
        return value
