"""Settings of `train.learn`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator

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

    def problems(self) -> Iterator[str]:
        if not self.glossary and not self.remove:
            yield "there is nothing to learn: give glossary=<file> (or remove=[<expression>])"
        if self.into == "weights" and self.remove:
            yield (
                "remove: what weights have learnt cannot be taken out of them: teach the original model "
                "again, with the glossary that remains"
            )
        if self.into == "weights" and self.corpus is None:
            yield (
                "into=weights: needs your own sentences, with the expressions and without "
                "(corpus=<text file>)"
            )
        if self.into == "tokens" and self.precision != "fp32":
            yield (f"precision={self.precision}: tokens are learnt in fp32; into=weights takes both")
        if self.model.glossary:
            yield "model.glossary is what a model reads after expressions: here, give glossary="
        for option in ("glossary_form", "glossary_weight", "glossary_gate", "glossary_dropout"):
            if getattr(self.model, option):
                yield (
                    f"model.{option} is for meanings that are read from a glossary, not learnt: leave it out"
                )
