"""Sources of users' tables: files, folders, and data sets of the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.files import is_file, is_folder, user_path
from idiomtune.io.tables import KINDS, Row, is_from_memory, is_table, read_rows

_HUB = re.compile(r"hf:(?P<repo>[^/:@]+/[^/:@]+)(/(?P<subset>[^:@]+))?:(?P<split>[^@]+)(@(?P<revision>.+))?")
_COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True)
class Source:
    """One table.

    Attributes:
        name: for messages: the file's path, or the name of a data set on the Hub, without a revision.
        path: None for a data set of the Hub.
        revision: of a data set of the Hub: the commit.
        hub: its rows.
    """

    name: str
    path: Path | None = None
    revision: str | None = None
    hub: Any = None

    def rows(self) -> Iterator[Row]:
        """Its rows, one at a time."""
        return map(Row, count(1), self.hub) if self.path is None else read_rows(self.path)


def find_sources(names: Sequence[str], option: str) -> list[Source]:
    """The tables that an option names; a folder stands for all tables in it, by name.

    Raises:
        UserError: if one does not exist, a folder contains none, or a data set is unavailable.
    """
    sources: list[Source] = []
    for name in names:
        path = user_path(name, option)
        if name.startswith("hf:"):
            sources.append(_hub_source(name, option))
        elif is_folder(path):
            tables = sorted(p for p in path.iterdir() if is_table(p))
            if not tables:
                raise UserError(f"the folder contains no table ({KINDS})", option=option, file=name)
            sources += [Source(str(table), table) for table in tables]
        elif is_file(path):
            in_memory = f"{option}, in memory" + f" ({len(sources) + 1})" * (len(names) > 1)
            sources.append(Source(in_memory if is_from_memory(path) else str(path), path))
        else:
            problem = "there is no such file or folder; several are a list, [a.csv,b.csv]. A data set of the "
            problem += "Hub: hf:<owner>/<name>:<split>"
            raise DataMissingError(problem, option=option, file=name)
    return sources


def _hub_source(name: str, option: str) -> Source:
    """A split of a data set of the Hub, at a commit; from the cache if there is no network."""
    match, named = _HUB.fullmatch(name), {"option": option, "file": name}
    if match is None:
        raise UserError("a data set of the Hub is hf:<owner>/<name>[/<subset>]:<split>[@<revision>]", **named)
    repo, revision = match["repo"], match["revision"]
    try:
        from datasets import load_dataset

        rows = load_dataset(repo, match["subset"], split=match["split"], revision=revision)
    except ImportError:
        raise UserError("needs the package datasets: pip install 'idiomtune[data]'", **named) from None
    except Exception as error:  # the library raises dozens of kinds
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        problem = f"cannot be loaded from the Hugging Face Hub or its cache: {reason}"
        raise DataMissingError(problem, **named) from None
    # The library names the folder of its cache by the commit.
    folders = {Path(file["filename"]).parent.name for file in rows.cache_files}
    commit = next(filter(_COMMIT.fullmatch, folders), None) if len(folders) == 1 else None
    is_pinned = revision is not None and _COMMIT.fullmatch(revision)
    if is_pinned and commit != revision:  # offline, the library takes whatever it has
        problem = (
            f"the cache has another revision, the commit {commit or '(unknown)'}: give that one, or try "
        )
        raise DataMissingError(f"{problem}again with a network", **named)
    return Source(name.partition("@")[0], None, commit, rows)
