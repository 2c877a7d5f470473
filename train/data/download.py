"""Files of public repositories, fetched from a commit and checked before they are kept."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from train.errors import DataMissingError, UserError
from train.io.files import fingerprint, sync, write_text
from train.io.paths import is_file
from train.io.text import one_line

log = logging.getLogger(__name__)

GITHUB_FILES = "https://raw.githubusercontent.com"
_TIMEOUT = 20.0  # seconds without a byte


@dataclass(frozen=True)
class PublishedFile:
    """A file of a public repository.

    It is fetched from a commit rather than from a branch, so that it is the same file for everybody and every
    day. If its sum is known, nothing else is accepted under its name; if not, what comes must at least be a
    table with its columns, and the sum of the first download counts from then on.

    Attributes:
        path: in the repository, at that commit.
        revision: the commit; `HEAD` where none is known to hold it.
        sha256: of its content, in hexadecimal, as it was when this project's results were measured; None
            if it is not known.
        columns: of a table whose sum is not known: those that it must have.
    """

    path: str
    revision: str
    sha256: str | None = None
    columns: tuple[str, ...] = ()


def published_files(
    revision: str, sha256: Mapping[str, str], *, path: Callable[[str], str] = str
) -> dict[str, PublishedFile]:
    """Files of one commit by their local paths.

    Args:
        sha256: of each, by its local path.
        path: local path → path in the repository.
    """
    return {name: PublishedFile(path(name), revision, known) for name, known in sha256.items()}


def github_file(repo: str, file: PublishedFile, target: Path, *, otherwise: str) -> Path:
    """A file of a repository on GitHub, as `target`: downloaded once, and checked at each use.

    The sum of a file that has no known one is recorded next to it, in `<name>.sha256`.

    Args:
        otherwise: what the user can do if the repository cannot be reached.

    Raises:
        DataMissingError: if it cannot be downloaded, or something else came.
        UserError: if the copy in the cache was changed.
    """
    record = target.with_name(f"{target.name}.sha256")
    expected = file.sha256 or (record.read_text(errors="replace").strip() if is_file(record) else None)
    if expected is not None and is_file(target):
        check_sum(target, expected, f"delete it and {record.name}")
        return target
    url = f"{GITHUB_FILES}/{repo}/{file.revision}/{quote(file.path)}"
    log.info("downloading %s to %s", url, target)
    try:
        content = _fetch(url)
        _check_content(content, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as folder:
            partial = Path(folder, target.name)
            partial.write_bytes(content)
            sync(partial)
            partial.replace(target)
        if file.sha256 is None:  # after the file: without a recorded sum it is downloaded again
            write_text(record, fingerprint(target) + "\n")
    except (OSError, HTTPException, ValueError) as error:  # the last for a bad redirect
        raise DataMissingError(
            f"{url} could not be downloaded to {target.parent}: {one_line(str(error))}\n  - {otherwise}"
        ) from None
    return target


def _fetch(url: str) -> bytes:
    try:
        with urlopen(url, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read()
    except HTTPError as error:
        error.close()  # it is the answer, too
        raise
    return content


def check_sum(path: Path, sha256: str, advice: str) -> None:
    """Check that a file in the cache is as it was downloaded.

    Args:
        advice: how the user makes the next start download it again.

    Raises:
        UserError: if it is missing, cannot be read or was changed.
    """
    try:
        changed = fingerprint(path) != sha256
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}: {advice} to download it again") from None
    if changed:
        raise UserError(f"{path} differs from what was downloaded: {advice} to download it again")


def _check_content(content: bytes, file: PublishedFile) -> None:
    """Raises ValueError: if this is not the published file; a login page, for example."""
    if file.sha256 is None:
        header = content.partition(b"\n")[0].decode(errors="replace")
        if missing := [name for name in file.columns if name not in header]:
            raise ValueError(f"the answer is not the published table: it has no column {missing[0]!r}")
    elif (actual := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise ValueError(f"its SHA-256 is {actual}, not the {file.sha256} of the published file")
