"""Settings of `train.learn`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationInfo, field_validator

from train.config.model import ModelSettings
from train.declarations.options import Count, Factor, Names, Ratio, Section, Text, as_list


class LearnSettings(Section):
    model: ModelSettings
    glossary: Names
    output: Text
    corpus: Text | None
    sentences: Count
    steps: Count
    learning_rate: Factor
    literal: Ratio | None
    remove: Annotated[list[Text], BeforeValidator(as_list)]
    device: Literal["auto", "cpu", "cuda", "mps"]

    @field_validator("glossary", "output", mode="before")
    @classmethod
    def _is_given(cls, value: object, info: ValidationInfo) -> object:
        if value is None:
            example = "<folder>" if info.field_name == "output" else "<file>"
            raise ValueError(f"is needed: {info.field_name}={example}")
        return value
