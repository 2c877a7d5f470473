"""Models by the names that the command line knows, which are those of the files in `conf/model/`."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.config import ModelSettings, check
from train.declarations.models import model_names, model_values, needs_its_code
from train.errors import UserError
from train.io.paths import is_folder

log = logging.getLogger(__name__)


def model_settings(path: str | Path, options: Mapping[str, Any]) -> ModelSettings:
    """The section `model` of a folder, a Hub id or a model's name.

    Args:
        options: of the section; where one is missing or None, what `conf/model/` has of the model counts.

    Raises:
        UserError: naming an option that is wrong.
    """
    named = path in model_names()  # a `Path` never is
    if named and is_folder(Path(path)):
        log.warning("%s is a model's name, so that is loaded; the folder is ./%s", path, path)
    values = model_values(str(path)) if named else model_values("pretrained") | {"path": str(path)}
    values |= {name: value for name, value in options.items() if value is not None}
    if named and values["about"].get("remote_code") == "needed" and not values["trust_remote_code"]:
        raise UserError(f"{needs_its_code(values['path'])} trust_remote_code=True runs it")
    settings: ModelSettings = check(ModelSettings, values, section="model")
    return settings


def resolve_model_path(path: str) -> str:
    """`package:<name>/<folder>` as that folder of the installed package; anything else unchanged."""
    if not path.startswith("package:"):
        return path
    package, _, inside = path.removeprefix("package:").partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(
            f"model {path}: the package {package} is not installed: "
            f"pip install {package.replace('_', '-')}, or name another model with model=<folder or Hub id>"
        )
    return str(Path(spec.origin).parent / inside)
