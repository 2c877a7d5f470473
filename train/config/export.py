"""Settings of `train.export`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import ValidationInfo, field_validator

from train.config.common import Common
from train.declarations.options import Count, Text


class ExportSettings(Common):
    format: Literal["onnx", "int8", "static"]
    output: Text
    truncate_dim: Count | None
    overwrite: bool
    device: Literal["cpu"]
    precision: Literal["fp32"]

    @field_validator("format", "output", mode="before")
    @classmethod
    def _is_given(cls, value: object, info: ValidationInfo) -> object:
        if value is None:
            example = "onnx|int8|static" if info.field_name == "format" else "<folder>"
            raise ValueError(f"is needed: {info.field_name}={example}")
        return value

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.model.idiom_tokens is not None:
            yield ("model.idiom_tokens adds tokens that were never trained: export a model that has them")
