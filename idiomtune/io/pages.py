"""Templates of pages and cards."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


@cache  # compiling it takes longer than filling it in
def template(file: Path, filters: tuple[Callable[..., Any], ...] = (), **options: Any) -> Template:
    """A template, in which a variable that is not given is an error.

    Args:
        filters: functions that it calls by their names.
        options: of jinja2's `Environment`.
    """
    environment = Environment(loader=FileSystemLoader(file.parent), undefined=StrictUndefined, **options)
    json_options = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = json_options
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(file.name)
