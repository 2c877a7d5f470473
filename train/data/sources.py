"""Where a data set is: the sample, a folder that the user names, or downloads."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from train.data.download import PublishedFile, github_file
from train.declarations.dataset import DatasetType
from train.errors import UserError
from train.io.files import fingerprint
from train.io.paths import cache_folder, expanded, is_file, is_folder

log = logging.getLogger(__name__)

SAMPLE_ROOT = Path(__file__).parent / "sample"


@dataclass(frozen=True)
class GitHubData:
    """A data set on GitHub.

    Attributes:
        dataset: what it is called here.
        repo: its repository.
        contents: what a folder of it contains, for messages.
        files: by their paths in such a folder.
    """

    dataset: DatasetType
    repo: str
    contents: str
    files: Mapping[str, PublishedFile]


@dataclass(frozen=True)
class DataFiles:
    """The files of a data set: in a local folder, or downloaded one by one.

    Args:
        source: where they are published.
        folder: a local one, which may also be a copy of the repository; None = download.
    """

    source: GitHubData
    folder: Path | None

    def __call__(self, name: str) -> Path:
        """A file that is published.

        Args:
            name: its path in a folder of the data set.

        Raises:
            DataMissingError: if it cannot be downloaded.
            UserError: if the folder has no such file.
        """
        dataset, contents = self.source.dataset, self.source.contents
        if self.folder is None:
            return github_file(
                self.source.repo,
                self.source.files[name],
                cache_folder() / dataset.name / name,
                otherwise=f"a local copy: {dataset.setting}=<folder with {contents}>, or "
                f"IDIOM_DATA=<folder with {dataset.name}/>",
            )
        published = Path(self.source.files[name].path).parent / Path(name).name
        for path in (name, str(published), name.replace(" ", "_"), str(published).replace(" ", "_")):
            if is_file(self.folder / path):
                _warn_if_altered(self.folder / path, self.source.files[name].sha256)
                return self.folder / path
        raise UserError(
            f"{self.folder / name}: there is no such file; {self.folder} must be the folder with {contents} "
            f"({dataset.setting}=)"
        )

    def optional(self, name: str) -> Path | None:
        """A file that is not published, where the user has it."""
        found = (self.folder or cache_folder() / self.source.dataset.name) / name
        return found if is_file(found) else None


@cache
def _warn_if_altered(path: Path, published: str | None) -> None:
    """Published files are read without proof-reading: that another one is read is logged, once."""
    is_sample = path.is_relative_to(SAMPLE_ROOT)
    if published is not None and not is_sample and fingerprint(path) != published:
        log.warning("%s is not the published file (another SHA-256): its scores are its own", path)


def dataset_folder(dataset: DatasetType, named: str | None, root: str | None, *, sample: bool) -> Path | None:
    """The folder of a data set other than IdioLink, or None where it is to be downloaded.

    The first that applies: the sample; `named`; `<root>/<name>`; `$IDIOM_DATA/<name>`.

    Args:
        named: what the user gave for this very data set, by its option: the folder, or one with `<name>/` in
            it.
        root: the setting `data.root`.

    Raises:
        UserError: if `named` is no folder.
    """
    if sample:
        return SAMPLE_ROOT / dataset.name
    if named is not None:
        folder = expanded(named, dataset.setting)
        if not is_folder(folder):
            raise UserError(f"{dataset.setting}={named}: there is no such folder")
        return folder / dataset.name if (folder / dataset.name).is_dir() else folder
    for above, by in ((root, "data.root"), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if above and is_folder(folder := expanded(above, by) / dataset.name):
            return folder
    return None
