"""Settings of `train.learn`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from train.config.model import ModelSettings
from train.declarations.options import Count, Factor, Ratio, Section, Text, as_list


class TaughtModel(ModelSettings):
    """The model of `train.learn`: its options of a glossary say how `glossary=` is learnt."""

    glossary_brief: Annotated[bool, BeforeValidator(lambda value: False if value is None else value)]


class LearnSettings(Section):
    model: TaughtModel
    glossary: Annotated[list[Text], BeforeValidator(as_list)]
    output: Text | None
    corpus: Text | None
    into: Literal["tokens", "weights"]
    sentences: Count | None
    steps: Count
    epochs: Count
    learning_rate: Factor | None
    literal: Ratio | None
    remove: Annotated[list[Text], BeforeValidator(as_list)]
    precision: Literal["fp32", "bf16"]
    device: Literal["auto", "cpu", "cuda", "mps"]

    @model_validator(mode="after")
    def _something_changes(self) -> Self:
        if not self.glossary and not self.remove:
            raise ValueError("there is nothing to learn: give glossary=<file> (or remove=[<expression>])")
        return self

    @model_validator(mode="after")
    def _weights_learn_from_sentences(self) -> Self:
        if self.into == "weights" and self.remove:
            raise ValueError(
                "remove: what weights have learnt cannot be taken out of them: teach the original model "
                "again, with the glossary that remains"
            )
        if self.into == "weights" and self.corpus is None:
            raise ValueError(
                "into=weights: needs your own sentences, with the expressions and without "
                "(corpus=<text file>)"
            )
        if self.into == "tokens" and self.precision != "fp32":
            raise ValueError(
                f"precision={self.precision}: tokens are learnt in fp32; into=weights takes both"
            )
        return self

    @model_validator(mode="after")
    def _one_glossary(self) -> Self:
        if self.model.glossary:
            raise ValueError("model.glossary is what a model reads beside expressions: here, give glossary=")
        return self

    @model_validator(mode="after")
    def _its_options_are_used(self) -> Self:
        for option in ("glossary_form", "glossary_weight", "glossary_gate", "glossary_dropout"):
            if getattr(self.model, option):
                raise ValueError(
                    f"model.{option} is for meanings that are read from a glossary, not learnt: leave it out"
                )
        return self
