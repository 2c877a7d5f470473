"""Models by the names that the command line knows, which are those of the files in `conf/model/`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

_MODELS = Path(__file__).resolve().parents[2] / "conf" / "model"


def model_names() -> list[str]:
    """The names that stand for models."""
    return sorted(path.stem for path in _MODELS.glob("*.yaml") if path.stem != "pretrained")


def near_model_names(name: str) -> str:
    """The names that look like this one, as a question; nothing where none does."""
    near = difflib.get_close_matches(name, model_names(), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def model_values(name: str) -> dict[str, Any]:
    """A file of `conf/model/` over those that it names as its defaults."""
    values = yaml.safe_load((_MODELS / f"{name}.yaml").read_text(encoding="utf-8"))
    composed: dict[str, Any] = {}
    for default in values.pop("defaults", []):
        composed = _merged(composed, {} if default == "_self_" else model_values(default))
    return _merged(composed, values)


def _merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Of two sections, such as `about`, the options of both."""
    sections = [key for key, value in over.items() if isinstance(value, dict) and values.get(key)]
    return values | over | {key: _merged(values[key], over[key]) for key in sections}


def needs_its_code(path: str) -> str:
    """Why a model is not loaded, up to the name of the option that allows it."""
    return f"{path} needs the Python code that comes with it: read it there, then"
