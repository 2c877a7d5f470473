"""Origins of data sets: the sample, a user's folder, or checked and cached downloads."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.cache import store_file
from idiomtune.io.files import cache_folder, fingerprint, is_file, is_folder, one_line, user_path
from idiomtune.io.terminal import progress_bar
from idiomtune.plugins.dataset import DatasetType

log = logging.getLogger(__name__)

SAMPLE_ROOT = Path(__file__).parent / "sample"
_PUBLISHED = Path(__file__).parent / "published.tsv"
GITHUB_FILES = "https://raw.githubusercontent.com"
_TIMEOUT = 20.0  # seconds without a byte
_BLOCK = 1 << 20  # bytes of a large file read at a time


@dataclass(frozen=True)
class PublishedFile:
    """A file of a public repository.

    It is fetched from a commit rather than from a branch, so that it is the same file for everybody and every
    day. If its sum is known, nothing else is accepted as a download; if not, at least no page is.

    Attributes:
        path: in the repository, at that commit.
        revision: the commit; `HEAD` if no commit is known to have it.
        sha256: of its content, in hexadecimal, as it was when this project's results were measured; None
            if it is not known.
    """

    path: str
    revision: str
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """Raises ValueError: if this is not the published file; a login page, for example."""
        if self.sha256 is None:
            _refuse_page(path)
        elif (actual := fingerprint(path)) != self.sha256:
            raise ValueError(f"its SHA-256 is {actual}, not the {self.sha256} of the published file")


@dataclass(frozen=True)
class GitHubData:
    """A data set on GitHub.

    Attributes:
        dataset: what it is called here.
        repo: its repository.
        files: by their paths in a folder of it.
    """

    dataset: DatasetType
    repo: str
    files: Mapping[str, PublishedFile]

    @property
    def contents(self) -> str:
        """The contents of the data set's folder, for messages."""
        return ", ".join(dict.fromkeys(name.partition("/")[0] for name in self.files))


def published_files(dataset: DatasetType) -> GitHubData:
    """A data set's files in `published.tsv`, with addresses and checksums."""
    with _PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["data_set"] == dataset.name]
    files = {}
    for row in rows:
        files[row["file"]] = PublishedFile(row["path"], row["revision"], row["sha256"] or None)
    return GitHubData(dataset, rows[0]["repository"], files)


@dataclass(frozen=True)
class DataFiles:
    """The files of a data set: in a local folder, or downloaded one by one.

    Args:
        source: where they are published.
        folder: a local one, which may also be a copy of the repository, or the only file; None = download.
    """

    source: GitHubData
    folder: Path | None

    def __call__(self, name: str) -> Path:
        """A published file. A changed copy is read too, with a warning.

        Args:
            name: its path in a folder of the data set.

        Raises:
            DataMissingError: if it cannot be downloaded.
            UserError: if the folder has no such file.
        """
        dataset, file = self.source.dataset, self.source.files[name]
        if self.folder is None:
            return _download_file(self.source, file, cache_folder() / dataset.name / name)
        if len(self.source.files) == 1 and is_file(self.folder):
            return self.folder
        published = str(Path(file.path).parent / Path(name).name)
        for path in (name, published, name.replace(" ", "_"), published.replace(" ", "_")):
            if is_file(self.folder / path):
                warn_if_altered(self.folder / path, file.sha256)
                return self.folder / path
        must = f"{self.folder} must be the folder with {self.source.contents} ({dataset.setting}=)"
        raise UserError(f"there is no such file; {must}", file=self.folder / name)

    def optional(self, name: str) -> Path | None:
        """An unpublished file, if the user has it."""
        path = (self.folder or cache_folder() / self.source.dataset.name) / name
        return path if is_file(path) else None


def _download_file(source: GitHubData, file: PublishedFile, target: Path) -> Path:
    """A file, downloaded as `target` unless it is there."""
    name, option = source.dataset.name, source.dataset.setting
    download(
        f"{GITHUB_FILES}/{source.repo}/{file.revision}/{quote(file.path)}",
        target,
        f"a local copy: {option}=<folder with {source.contents}>, or IDIOM_DATA=<folder with {name}/>",
        file.check,
    )
    warn_if_altered(target, file.sha256, " Delete it to download it again.")
    return target


def _refuse_page(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(20).lstrip().startswith(b"<"):
            raise ValueError("the answer is a page, not the file")


def download(url: str, target: Path, remedy: str, check: Callable[[Path], None] = _refuse_page) -> None:
    """Fetch a file unless it is there, completely or not at all; twice if the connection ends early.

    Args:
        remedy: what else the user can do.
        check: raises ValueError for what is not the file.

    Raises:
        DataMissingError: if it cannot be downloaded, or is another file.
    """

    def fetch(path: Path) -> None:
        with urlopen(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:
            total = int(answer.headers["Content-Length"] or 0)
            with progress_bar("bytes", total) as advance:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    advance(len(block))
        if (size := path.stat().st_size) < total:
            raise ConnectionError(f"the connection ended after {size:,} of {total:,} bytes")
        check(path)

    if is_file(target):
        return
    log.info("downloading %s to %s", url, target)
    try:
        try:
            store_file(target, fetch)
        except ConnectionError as error:
            log.info("%s: trying again", error)
            store_file(target, fetch)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise DataMissingError(
            f"{url} could not be downloaded to {target.parent}: {one_line(str(error))}\n  - {remedy}"
        ) from None


@cache
def warn_if_altered(path: Path, published: str | None, advice: str = "") -> None:
    """Log, once, that a file differs from the published one."""
    if published is None or path.is_relative_to(SAMPLE_ROOT):
        return
    if is_file(path) and fingerprint(path) != published:
        log.warning("%s is not the published file (another SHA-256): its scores are its own.%s", path, advice)


def dataset_folder(dataset: DatasetType, named: str | None, root: str | None, *, sample: bool) -> Path | None:
    """The folder of a data set other than IdioLink, or None where it is to be downloaded.

    The first that applies: the sample; `named`; `<root>/<name>`; `$IDIOM_DATA/<name>`.

    Args:
        named: what the user gave for this very data set, by its option: the folder, one with `<name>/` in it,
            or the only file.
        root: the setting `data.idiolink`.

    Raises:
        UserError: if there is no such path.
    """
    if sample:
        return SAMPLE_ROOT / dataset.name
    if named is not None:
        folder = user_path(named, dataset.setting)
        if not (is_folder(folder) or is_file(folder)):
            raise UserError("there is no such file or folder", option=dataset.setting, file=named)
        return folder / dataset.name if (folder / dataset.name).is_dir() else folder
    for above, source in ((root, "data.idiolink"), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if above and is_folder(folder := user_path(above, source) / dataset.name):
            return folder
    return None
