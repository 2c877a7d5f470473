"""Where a user's tables are: files, folders of them, data sets of the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.errors import DataMissingError, UserError
from train.io.paths import expanded, is_file, is_folder
from train.io.tables import KINDS, Row, is_table, read_rows

_HUB = re.compile(r"hf:(?P<repo>[^/:@]+/[^/:@]+)(/(?P<subset>[^:@]+))?:(?P<split>[^@]+)(@(?P<revision>.+))?")


@dataclass(frozen=True)
class Source:
    """One table.

    Attributes:
        name: for messages: the file's path, or what the user named, without a revision.
        path: None for a data set of the Hub.
        revision: of a data set of the Hub: the commit.
    """

    name: str
    path: Path | None = None
    revision: str | None = None
    hub: Any = None

    def rows(self) -> Iterator[Row]:
        """Its rows, one at a time."""
        if self.path is not None:
            yield from read_rows(self.path)
            return
        for number, values in enumerate(self.hub, 1):
            yield Row(number, values)


def find_sources(names: Sequence[str], option: str) -> list[Source]:
    """The tables that an option names; a folder stands for all tables in it, by name.

    Raises:
        UserError: if one is not there, a folder has none, or a data set is unavailable.
    """
    found: list[Source] = []
    for name in names:
        path = expanded(name, option)
        if name.startswith("hf:"):
            found.append(_hub_source(name, option))
        elif is_folder(path):
            tables = sorted(p for p in path.iterdir() if is_table(p))
            if not tables:
                raise UserError(f"{option}={name}: the folder contains no table ({KINDS})")
            found += [Source(str(table), table) for table in tables]
        elif is_file(path):
            found.append(Source(str(path), path))
        else:
            several = f". Several files are a list: '{option}=[{name}]'" if "," in name else ""
            raise DataMissingError(
                f"{option}={name}: there is no such file or folder{several}. A data set of the Hub is named "
                "hf:<owner>/<name>:<split>"
            )
    twice = {s.name for s in found if sum(o.name == s.name for o in found) > 1}
    if twice:
        raise UserError(f"{option}: names {min(twice)} twice")
    return found


def _hub_source(name: str, option: str) -> Source:
    """A split of a data set of the Hub, at a commit; from the cache where there is no network."""
    match = _HUB.fullmatch(name)
    if match is None:
        raise UserError(
            f"{option}={name}: a data set of the Hub is hf:<owner>/<name>[/<subset>]:<split>[@<revision>]"
        )
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(
            f"{option}={name} needs the package datasets: pip install 'idiomtune[data]'"
        ) from None
    try:
        rows = load_dataset(match["repo"], match["subset"], split=match["split"], revision=match["revision"])
    except Exception as error:  # the library raises dozens of kinds
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataMissingError(
            f"{option}={name}: cannot be loaded from the Hugging Face Hub, nor from its cache: {reason}"
        ) from None
    commit = _commit(rows)
    if match["revision"] is not None and commit != _wanted_commit(match["repo"], match["revision"]):
        # Without a network the library takes what it has.
        raise DataMissingError(
            f"{option}={name}: the Hugging Face Hub cannot be asked for that revision, and its cache holds "
            f"the commit {commit or '(unknown)'}: name that one, or try again with a network"
        )
    return Source(name.partition("@")[0], None, commit, rows)


def _commit(rows: Any) -> str | None:
    """The commit, by which the library names the folder of its cache."""
    folders = {Path(file["filename"]).parent.name for file in rows.cache_files}
    found = [folder for folder in folders if re.fullmatch("[0-9a-f]{40}", folder)]
    return found[0] if len(found) == 1 else None


def _wanted_commit(repo: str, revision: str) -> str | None:
    """What a branch or tag stands for; None where the Hub cannot be asked."""
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(repo, revision=revision).sha
    except Exception:  # of many kinds, too
        return None
