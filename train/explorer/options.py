"""The options of `train.explore`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from train.declarations.options import Section, Text
from train.io.paths import expanded

PORT = 8765


def _files(value: Any) -> Any:
    """`a.tsv,b.tsv`, in brackets or not; `none` = no files."""
    if not isinstance(value, str):
        return value
    names = value.strip("[]")
    return [] if names in ("", "none") else [name.strip() for name in names.split(",")]


def _path(value: Any) -> Any:
    return expanded(value, "output") if isinstance(value, str) and value else value


OutputPath = Annotated[Path, BeforeValidator(_path)]


class Options(Section):
    """The command line.

    Attributes:
        models: run folders, folders of models, names of configurations or of models on the Hub.
        corpus: what is searched; None = what the first run was scored on.
        split: of IdioLink; None = the one that the first run was scored on, else val.
        glossary: files that all models read instead of their own; [] = none; None = their own.
        queries: how many of the corpus's queries are listed.
        neighbours: how many are shown of a query.
        output: the file to write instead of serving the page.
        space: the folder to write for a static Space on the Hub.
        overwrite: replaces the files of `output` or `space`.
        name: of the models, in the page's title; "" = what `models` names.
        port: None = 8765, or any that is free.
    """

    model_config = ConfigDict(strict=False)  # values of a command line are text

    models: list[str]
    corpus: Text | None = None
    split: Text | None = None
    glossary: Annotated[list[str], BeforeValidator(_files)] | None = None
    queries: Annotated[int, Field(ge=1, le=100_000)] = 300
    neighbours: Annotated[int, Field(ge=1, le=100)] = 10
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    output: OutputPath | None = None
    space: OutputPath | None = None
    overwrite: bool = False
    name: str = ""
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None

    def problems(self) -> Iterator[str]:
        if self.output is not None and self.space is not None:
            yield "output= and space= write the same page: give one of them"
