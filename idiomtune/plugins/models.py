"""Models by the names that the command line knows, which are those of the files in `conf/model/`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a report reads all of them
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
