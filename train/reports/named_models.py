"""A run's model by one short name, in place of its many options."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from train.declarations.models import model_names, model_values

_MODEL = "model."


def with_named_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's options, those of `conf/model/` as `model=<name>`; what differs from them stays.

    A model of no such name is named by its path: a Hub id, or the end of a folder's.

    Args:
        config: dotted option → value.
    """
    model = {key.removeprefix(_MODEL): value for key, value in config.items() if key.startswith(_MODEL)}
    path = model.pop("path", None)
    if not isinstance(path, str):
        return dict(config)
    facts = {key for key in model if key == "about" or key.startswith("about.")}
    chosen = {key: value for key, value in model.items() if key not in facts}
    alike = [name for name, values in _named().items() if values["path"] == path]
    name = min(alike, key=lambda name: len(_changed(chosen, _named()[name])), default="pretrained")
    changed = _changed(chosen, _named()[name])
    short = _short(path) if name == "pretrained" else name
    others = {key: value for key, value in config.items() if not key.startswith(_MODEL)}
    return {"model": short, **{f"{_MODEL}{key}": value for key, value in changed.items()}, **others}


@cache
def _named() -> dict[str, dict[str, Any]]:
    return {name: model_values(name) for name in [*model_names(), "pretrained"]}


def _changed(options: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value != named.get(key)}


def _short(path: str) -> str:
    """`me/model` as it is, a folder by its last two names."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    return "/".join(parts[-2:]) if len(parts) > 2 else path
