"""The section `model`, and models by the names of the files in `conf/model/`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, field_validator

from idiomtune.expressions import expression_words
from idiomtune.plugins.options import ConfigSection, Count, Ratio, Text, as_list

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a report reads all of them
CONF = next(
    folder / "conf"
    for folder in Path(__file__).resolve().parents[1:]  # in the package as installed, beside it in a checkout
    if (folder / "conf" / "train.yaml").is_file()
)
_MODELS = CONF / "model"


def model_names() -> list[str]:
    """All of these names."""
    return sorted(path.stem for path in _MODELS.glob("*.yaml") if path.stem != "pretrained")


def near_model_names(name: str) -> str:
    """The names that look like this one, as a question; "" if none does."""
    near = difflib.get_close_matches(name, model_names(), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def model_values(name: str) -> dict[str, Any]:
    """A file of `conf/model/`, with every option that it leaves out."""
    values: dict[str, Any] = yaml.load((_MODELS / f"{name}.yaml").read_text(encoding="utf-8"), _LOADER)
    (base,) = values.pop("defaults", ["pretrained" if name != "pretrained" else ""])
    return (model_values(base.removesuffix("@_here_")) if base else {}) | values


def needs_its_code(path: str) -> str:
    """Why a model is not loaded, up to the name of the option that allows it."""
    return f"{path} needs the Python code that comes with it: read it there, then"


def _is_a_template(prompt: str) -> str:
    if prompt.count("{query}") != 1 or prompt.count("{instruction}") > 1:
        raise ValueError(f"must hold {{query}} once, and {{instruction}} at most once, got {prompt!r}")
    return prompt


InstructionPrompt = Annotated[str, AfterValidator(_is_a_template)]


class ModelFacts(ConfigSection):
    """Facts about a model in `conf/model/`; docs/models.md has more.

    Attributes:
        licence: from its page; None if it states none.
        remote_code: whether Python code that comes with the checkpoint is `needed` to load it properly, or
            `offered` as an alternative to the library's class.
    """

    licence: Text | None = None
    remote_code: Literal["needed", "offered"] | None = None


class ModelSettings(ConfigSection):
    path: Text
    revision: Text | None
    pooling: Text | None
    include_prompt: bool | None
    bidirectional: bool | None
    span_from: Literal["last_hidden_state"] | None
    max_length: Count | None
    query_prompt: str | None
    document_prompt: str | None
    instruction_prompt: InstructionPrompt | None
    trust_remote_code: bool
    tokens_per_forward: Count | None
    idiom_tokens: str | list[str] | None
    idiom_tokens_start: Literal["pieces", "random"]
    replace_expressions: bool | None
    glossary: Annotated[list[Text], BeforeValidator(as_list)] | None
    glossary_form: Literal["append", "replace"] | None
    glossary_gate: bool | None
    glossary_dropout: Ratio
    about: ModelFacts | None

    @field_validator("path")
    @classmethod
    def _is_no_name(cls, value: str) -> str:
        if value in model_names() and not os.path.isdir(value):  # noqa: PTH112  no error for odd names
            raise ValueError(f"{value} is the name of a model, not a folder or Hub id: give model={value}")
        return value

    def problems(self) -> Iterator[str]:
        if self.about is not None and self.about.remote_code == "needed" and not self.trust_remote_code:
            yield f"{needs_its_code(self.path)} model.trust_remote_code=true runs it"

    @field_validator("idiom_tokens", mode="before")
    @classmethod
    def _expressions(cls, value: object) -> object:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"must be train, a list of expressions, or a text file of them, got {value!r}")
        for expression in map(str, value):
            expression_words(expression)
        return value


def model_settings_of(name: str, **options: object) -> ModelSettings:
    """The settings of a model: a name in `conf/model/`, a folder or a Hub id.

    Args:
        options: in place of those that it has there.

    Raises:
        ValueError: if there is none of that name, or it needs an option.
    """
    if name in model_names():
        return ModelSettings.model_validate(model_values(name) | options)
    if "/" not in name and not os.path.isdir(name):  # noqa: PTH112
        hint = near_model_names(name) or f"the names of models are {', '.join(model_names())}"
        raise ValueError(f"{name} is not a folder, Hub id or name of a model: {hint}")
    return ModelSettings.model_validate(model_values("pretrained") | {"path": name} | options)
