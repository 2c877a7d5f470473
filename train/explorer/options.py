"""The options of `train.explore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PORT = 8765


@dataclass(frozen=True)
class Options:
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

    models: list[str]
    corpus: str | None = None
    split: str | None = None
    glossary: list[str] | None = None
    queries: int = 300
    neighbours: int = 10
    device: str = "auto"
    output: Path | None = None
    space: Path | None = None
    overwrite: bool = False
    name: str = ""
    port: int | None = None
