"""The section `tracking`: where the metrics go beside `metrics.jsonl`."""

from __future__ import annotations

import importlib.util
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.declarations.options import Section, as_list


class WandbSettings(Section):
    name: Literal["wandb"]
    project: Annotated[str, Field(min_length=1)]
    entity: str | None
    group: str | None
    tags: Annotated[list[str], BeforeValidator(as_list)]
    mode: Literal["auto", "online", "offline"]
    log_model: Literal["best"] | None = None
    registry: str | None = None

    @model_validator(mode="after")
    def _a_logged_model_is_registered(self) -> Self:
        if self.registry is not None and self.log_model is None:
            raise ValueError(f"registry={self.registry} links the model that log_model=best logs: add that")
        return self


class TensorBoardSettings(Section):
    name: Literal["tensorboard"]
    scores: Literal["main", "all"] = "main"


class TrackingSettings(Section):
    """The trackers that `tracking=[...]` chose; the others are None."""

    wandb: WandbSettings | None = None
    tensorboard: TensorBoardSettings | None = None

    @model_validator(mode="after")
    def _packages_are_there(self) -> Self:
        for name in type(self).model_fields:
            if getattr(self, name) is not None and importlib.util.find_spec(name) is None:
                raise ValueError(
                    f"tracking={name} needs the package {name}, which is not installed: "
                    f"pip install 'idiomtune[{name}]' (or {name} alone), or leave it out"
                )
        return self
