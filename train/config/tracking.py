"""The section `tracking`: where the metrics go beside `metrics.jsonl`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

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

    def problems(self) -> Iterator[str]:
        if self.registry is not None and self.log_model is None:
            yield f"registry={self.registry} links the model that log_model=best logs: add that"


class TensorBoardSettings(Section):
    name: Literal["tensorboard"]
    scores: Literal["main", "all"] = "main"


class TrackingSettings(Section):
    """The trackers that `tracking=[...]` chose; the others are None."""

    wandb: WandbSettings | None = None
    tensorboard: TensorBoardSettings | None = None

    def problems(self) -> Iterator[str]:
        for name in type(self).model_fields:
            if getattr(self, name) is not None and importlib.util.find_spec(name) is None:
                yield (
                    f"tracking={name} needs the package {name}, which is not installed: "
                    f"pip install 'idiomtune[{name}]' (or {name} alone), or leave it out"
                )
