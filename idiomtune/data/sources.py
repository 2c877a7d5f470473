"""Origins of data sets: the sample, a user's folder, or checked and cached downloads."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from filelock import FileLock

from idiomtune.declarations.dataset import DatasetType
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.files import (
    cache_folder,
    fingerprint,
    is_file,
    is_folder,
    one_line,
    sync,
    user_path,
    write_json,
)
from idiomtune.io.outputs import LOCK
from idiomtune.io.records import readable_record
from idiomtune.io.terminal import progress_bar

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
    day. If its sum is known, nothing else is accepted as a download; if not, what comes must at least be a
    table with its columns, and the sum of the first download counts from then on.

    Attributes:
        path: in the repository, at that commit.
        revision: the commit; `HEAD` if no commit is known to have it.
        sha256: of its content, in hexadecimal, as it was when this project's results were measured; None
            if it is not known.
        columns: of a table whose sum is not known: those that it must have.
    """

    path: str
    revision: str
    sha256: str | None = None
    columns: tuple[str, ...] = ()

    def check(self, path: Path) -> None:
        """Raises ValueError: if this is not the published file; a login page, for example."""
        if self.sha256 is None:
            with path.open("rb") as file:
                header = file.readline().decode(errors="replace")
            if missing := [name for name in self.columns if name not in header]:
                raise ValueError(f"the answer is not the published table: it has no column {missing[0]!r}")
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
        columns = tuple(row["columns"].split(","))
        files[row["file"]] = PublishedFile(row["path"], row["revision"], row["sha256"] or None, columns)
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
    sum_ = file.sha256 or readable_record(_record(target)).get("sha256")
    warn_if_altered(target, sum_, " Delete it to download it again.")
    return target


def _record(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _refuse_page(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(20).lstrip().startswith(b"<"):
            raise ValueError("the answer is a page, not the file")


def download(url: str, target: Path, remedy: str, check: Callable[[Path], None] = _refuse_page) -> None:
    """Fetch a file unless it is there; next to it, its address, date and SHA-256 are recorded.

    What came before an interruption is kept, and the next call resumes it. A second program waits for the
    first.

    Args:
        remedy: what else the user can do.
        check: raises ValueError for what is not the file.

    Raises:
        DataMissingError: if it cannot be downloaded, or is another file.
    """
    if is_file(target):
        return
    partial = target.with_name(f"{target.name}.partial")
    log.info("downloading %s to %s", url, target)
    try:
        with FileLock(target.parent / LOCK):
            while not is_file(target):
                before = _size(partial)
                try:
                    _fetch_rest(url, partial)
                except (OSError, HTTPException) as error:
                    if _size(partial) <= before:
                        raise
                    log.info("%s: resuming", one_line(str(error)))
                    continue
                try:
                    check(partial)
                except ValueError:
                    partial.unlink()
                    raise
                sync(partial)
                record = {"url": url, "date": f"{datetime.now(UTC):%Y-%m-%d}", "sha256": fingerprint(partial)}
                write_json(_record(target), record)
                partial.replace(target)
    except (OSError, HTTPException, ValueError) as error:
        resume = "\n  - what came of it is kept: repeat the command to resume" if _size(partial) else ""
        raise DataMissingError(
            f"{url} could not be downloaded to {target.parent}: {one_line(str(error))}\n  - {remedy}{resume}"
        ) from None


def _size(path: Path) -> int:
    return path.stat().st_size if is_file(path) else 0


def _fetch_rest(url: str, partial: Path) -> None:
    """The rest of a file, if the server still has the same version; otherwise the whole file."""
    version = partial.with_suffix(".version")  # the server's name of it
    done = _size(partial) if is_file(version) else 0
    begun = {"Range": f"bytes={done}-", "If-Range": version.read_text()} if done else {}
    try:
        answer = build_opener(NoDowngrade).open(Request(url, headers=begun), timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # complete, or longer than it is now
            version.unlink()
            return _fetch_rest(url, partial)
        raise
    with answer:
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            done = 0
            version.unlink(missing_ok=True)
            if name := answer.headers["Last-Modified"] or answer.headers["ETag"]:
                version.write_text(name)
        total = done + int(answer.headers["Content-Length"] or 0)
        with partial.open("ab" if done else "wb") as file, progress_bar("bytes", total, done) as advance:
            while block := answer.read(_BLOCK):
                file.write(block)
                advance(len(block))
    if (size := _size(partial)) < total:
        raise OSError(f"the connection ended after {size:,} of {total:,} bytes")
    return None


class NoDowngrade(HTTPRedirectHandler):
    """Refuses a redirect from https to a connection that anybody on the way can read and change."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """The request of the new address."""
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise HTTPError(req.full_url, code, f"redirect to {newurl}, without encryption", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


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
        root: the setting `data.root`.

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
    for above, source in ((root, "data.root"), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if above and is_folder(folder := user_path(above, source) / dataset.name):
            return folder
    return None
