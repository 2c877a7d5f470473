"""The section `model`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, field_validator

from train.declarations.models import model_names, model_values, near_model_names, needs_its_code
from train.declarations.options import Count, Ratio, Section, Text, Weight, as_list
from train.expressions import expression_words
from train.io.paths import is_folder


def _is_a_template(prompt: str) -> str:
    if prompt.count("{query}") != 1 or prompt.count("{instruction}") > 1:
        raise ValueError(
            f"must hold {{query}} exactly once, and {{instruction}} at most once, got {prompt!r}"
        )
    return prompt


InstructionPrompt = Annotated[str, AfterValidator(_is_a_template)]


class ModelFacts(Section):
    """Facts about a model in `conf/model/`; they do not change what is computed.

    Attributes:
        licence: from its page; None if there is none.
        parameters: their number, such as `109M`.
        pooling: the checkpoint's, in words.
        max_tokens: the checkpoint's limit.
        remote_code: whether Python code that comes with the checkpoint is `needed` to load it properly, or
            `offered` as an alternative to the library's class.
        papers: those whose tables include it.
    """

    licence: Text | None = None
    parameters: Text
    pooling: Text | None = None
    max_tokens: Count | None = None
    remote_code: Literal["needed", "offered"] | None = None
    papers: list[Text]


class ModelSettings(Section):
    path: Text
    revision: Text | None
    pooling: Text | None
    pool_prompts: bool | None
    bidirectional: bool | None
    span: Literal["raw"] | None
    max_length: Count | None
    query_prompt: str | None
    document_prompt: str | None
    instruction_prompt: InstructionPrompt | None
    trust_remote_code: bool
    convert_weights: bool
    tokens_per_forward: Count | None
    idiom_tokens: str | list[str] | None
    idiom_tokens_start: Literal["pieces", "random"]
    replace_expressions: bool | None
    glossary: Annotated[list[Text], BeforeValidator(as_list)] | None
    glossary_form: Literal["beside", "in_place"] | None
    glossary_senses: Count | None
    glossary_weight: Weight | None
    glossary_gate: bool | None
    glossary_brief: bool | None
    glossary_max_similarity: Ratio | None
    glossary_dropout: Ratio
    about: ModelFacts | None

    @field_validator("path")
    @classmethod
    def _is_no_name(cls, value: str) -> str:
        if value in model_names() and not is_folder(Path(value)):
            raise ValueError(f"{value} is the name of a model, not a folder or Hub id: give model={value}")
        return value

    def problems(self) -> Iterator[str]:
        if self.about is not None and self.about.remote_code == "needed" and not self.trust_remote_code:
            yield f"{needs_its_code(self.path)} model.trust_remote_code=true runs it"

    @field_validator("idiom_tokens", mode="before")
    @classmethod
    def _expressions(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"must be train, a list of expressions, or a text file of them, got {value!r}")
        for expression in map(str, value):
            expression_words(expression)
        return value


def named_model(name: str) -> ModelSettings:
    """The settings of a model that an option names: as in `conf/model/`, else a folder or Hub id.

    Raises:
        ValueError: if there is none of that name, or it needs an option.
    """
    if name in model_names():
        return ModelSettings.model_validate(model_values(name))
    if "/" not in name and not is_folder(Path(name)):
        known = near_model_names(name) or f"the names of models are {', '.join(model_names())}"
        raise ValueError(f"{name} is no folder, Hub id or name of a model: {known}")
    return ModelSettings.model_validate(model_values("pretrained") | {"path": name})
