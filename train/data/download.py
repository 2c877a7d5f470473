"""Files from the web: bounded in size and time, and checked before they are kept."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import re
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from train.errors import DataMissingError, UserError
from train.io.files import fingerprint, sync, write_text
from train.io.paths import is_file
from train.io.tables import read_rows
from train.io.text import one_line

log = logging.getLogger(__name__)

GITHUB_FILES = "https://raw.githubusercontent.com"
_BLOCK = 2**16


@dataclass(frozen=True)
class Limits:
    """What a download may take.

    Attributes:
        silence: seconds without a byte.
        total: seconds in all: a server that sends a byte now and then would hold a run for ever.
        size: bytes. The largest public file has some megabytes.
    """

    silence: float = 20
    total: float = 600
    size: int = 256 * 2**20


LIMITS = Limits()


class DownloadError(Exception):
    """Why a download was given up, or not kept: a part of a message."""


@dataclass(frozen=True)
class PublishedFile:
    """A file of a public repository.

    It is fetched from a commit rather than from a branch, so that it is the same file for everybody and every
    day. Where its sum is known, nothing else is accepted under its name; where it is not, what comes must at
    least be a table with its columns, and the sum of the first download counts from then on.

    Attributes:
        path: in the repository, at that commit.
        revision: the commit; `HEAD` where none is known to hold it.
        sha256: of its content, in hexadecimal, as it was when this project's results were measured; None
            where it is not known.
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

    The sum of what was downloaded is kept beside it, in `<name>.sha256`.

    Args:
        otherwise: what the user can do where the repository cannot be reached.

    Raises:
        DataMissingError: if it cannot be downloaded, or what came is not this file.
        UserError: if the copy in the cache is damaged.
    """
    if _serves(target, file):
        return target
    url = f"{GITHUB_FILES}/{repo}/{file.revision}/{urllib.parse.quote(file.path)}"
    log.info("downloading %s to %s", url, target)
    try:
        content = fetch(url, limits=LIMITS)
        with partial_file(target, content) as partial:
            if (reason := _refused(partial, file)) is not None:
                raise DownloadError(f"what came is not kept: {reason}{_web_page(content)}")
            recorded = _recorded(target)
            recorded.unlink(missing_ok=True)  # never a sum beside a file that it is not of
            partial.replace(target)
        # Written last: its presence says that the download is complete.
        write_text(recorded, hashlib.sha256(content).hexdigest() + "\n")
    except (OSError, DownloadError) as error:
        raise DataMissingError(
            f"{url} could not be downloaded to {target.parent}: {error}\n  - {otherwise}"
        ) from None
    return target


def fetch(url: str, *, authorization: str | None = None, limits: Limits = LIMITS) -> bytes:
    """What an address gives, whole.

    Args:
        authorization: the header of this name; it is not passed on to where the address redirects to.

    Raises:
        DownloadError: if it cannot be reached, answers with an error or with nothing, sends less than it
            announced, or goes beyond the limits.
    """
    answer: Future[bytes] = Future()

    def work() -> None:
        try:
            answer.set_result(_read(url, authorization, limits))
        except BaseException as error:
            answer.set_exception(error)

    # In a thread of its own, because neither the resolution of a name nor a slow header has a time limit.
    threading.Thread(target=work, daemon=True, name=f"download of {url}").start()
    if not wait([answer], timeout=limits.total).done:
        raise DownloadError(_too_long(limits))
    return answer.result()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """As the library's, which leaves the connection open where the address redirected to is none."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _read(url: str, authorization: str | None, limits: Limits) -> bytes:
    end = time.monotonic() + limits.total
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if authorization is not None:
        request.add_unredirected_header("Authorization", authorization)
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=limits.silence) as answer:
            return _body(answer, url, end, limits)
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadError(one_line(f"the server says {error.code} {error.reason}")) from None
    except TimeoutError:
        raise DownloadError(f"there was no answer for {limits.silence:g} seconds") from None
    except urllib.error.URLError as error:
        raise DownloadError(one_line(str(error.reason))) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last for a bad redirect
        raise DownloadError(one_line(f"{type(error).__name__}: {error}")) from None


def _body(answer: http.client.HTTPResponse, url: str, end: float, limits: Limits) -> bytes:
    if url.startswith("https:") and not answer.geturl().startswith("https:"):
        raise DownloadError(one_line(f"it redirects to {answer.geturl()}, which is not encrypted"))
    if answer.status != http.HTTPStatus.OK:
        raise DownloadError(f"the server says {answer.status}, not 200")
    if answer.length is None and not answer.chunked:
        raise DownloadError("the server does not say where the file ends (neither Content-Length nor chunks)")
    announced = answer.length
    body = bytearray()
    while (announced or 0) <= limits.size and len(body) <= limits.size and (block := answer.read1(_BLOCK)):
        body += block
        if time.monotonic() > end:
            raise DownloadError(_too_long(limits))
    if max(announced or 0, len(body)) > limits.size:
        raise DownloadError(f"it has more than {limits.size:,} bytes")
    if answer.length:  # still to come, where the connection was closed
        raise DownloadError(f"it was cut short: {len(body)} of {announced} bytes came")
    content = _decoded(bytes(body), answer.headers.get("Content-Encoding", "identity"), limits)
    if not content:
        raise DownloadError("the answer is empty")
    return content


def _decoded(body: bytes, encoding: str, limits: Limits) -> bytes:
    """The content of an answer that is compressed, though no compression was asked for."""
    if encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise DownloadError(one_line(f"it comes in an encoding that is not known here: {encoding}"))
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(body, limits.size + 1)
    except zlib.error as error:
        raise DownloadError(
            f"it says that it is compressed by gzip, but cannot be unpacked: {error}"
        ) from None
    if len(content) > limits.size:
        raise DownloadError(f"it has more than {limits.size:,} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise DownloadError("it is compressed by gzip, and was cut short or has something after its end")
    return content


def _too_long(limits: Limits) -> str:
    return f"it took longer than {limits.total:g} seconds"


def _web_page(content: bytes) -> str:
    """What is likely where a page came: networks that ask for a login answer every request with one."""
    is_page = content.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))
    return " (it is a web page: does this network ask for a login?)" if is_page else ""


@contextlib.contextmanager
def partial_file(target: Path, content: bytes) -> Iterator[Path]:
    """The content in a file beside `target`, to be checked and renamed; what is left of it is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for each process, since several may download at once.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            file.write(content)
            file.close()
            sync(partial)
            partial.chmod(0o644)  # of a temporary file, only its owner's; a cache may be shared
            yield partial
        finally:
            partial.unlink(missing_ok=True)


def _recorded(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _serves(target: Path, file: PublishedFile) -> bool:
    """Whether there is a copy that need not be downloaded again.

    A copy that is as it was downloaded, but not the file that was meant, is downloaded again.

    Raises:
        UserError: if there is one that was changed since, or nothing tells whether it was.
    """
    recorded = _recorded(target)
    if not (is_file(target) and is_file(recorded)):
        return False
    try:
        actual = fingerprint(target)
        was = recorded.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror}") from None
    if actual == file.sha256:
        return True
    if not re.fullmatch("[0-9a-f]{64}", was):
        raise UserError(
            f"{recorded} is damaged: it holds no SHA-256 sum. Delete it and {target} to download the "
            "file again"
        )
    if actual != was:
        raise UserError(
            f"{target} differs from what was downloaded: delete it and {recorded.name} to download it again"
        )
    if (reason := _refused(target, file)) is not None:
        log.warning("%s is downloaded again: %s", target, reason)
        return False
    return True


def _refused(path: Path, file: PublishedFile) -> str | None:
    """Why a file on disk is not the published one, or None."""
    if file.sha256 is not None:
        return differs(path, file.sha256)
    return refused_by(lambda: list(read_rows(path, columns=file.columns, kind=Path(file.path).suffix)), path)


def differs(path: Path, sha256: str) -> str | None:
    """That a file has another sum than expected, or None."""
    actual = fingerprint(path)
    return None if actual == sha256 else f"its SHA-256 is {actual}, not the {sha256} of the published file"


def refused_by(read: Callable[[], object], path: Path) -> str | None:
    """Why a reader of the file `path` refuses it, without its name, or None."""
    try:
        read()
    except UserError as error:
        return str(error).replace(f"{path}: ", "")
    return None
