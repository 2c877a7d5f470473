"""One file from a public GitHub repository, once, into the cache, verified when it is used again."""

from __future__ import annotations

import hashlib
import http.client
import logging
import urllib.parse
import urllib.request
from pathlib import Path

from train.errors import DataMissingError, UserError

log = logging.getLogger(__name__)

GITHUB_FILES = "https://raw.githubusercontent.com"
_TIMEOUT = 20  # seconds without an answer


def github_file(repo: str, path: str, folder: Path, *, otherwise: str) -> Path:
    """The file `path` of the repository's main branch, in `folder`.

    Its checksum is kept beside it; a file that differs from what was downloaded is an error.

    Args:
        otherwise: what the user can do where the repository cannot be reached.

    Raises:
        DataMissingError: if it cannot be downloaded.
        UserError: if the copy in the cache is damaged.
    """
    target = folder / Path(path).name
    recorded = target.with_name(f"{target.name}.sha256")
    if recorded.is_file() and target.is_file():
        if hashlib.sha256(target.read_bytes()).hexdigest() != recorded.read_text(encoding="utf-8").strip():
            raise UserError(f"{target} differs from what was downloaded: delete it to download it again")
        return target
    url = f"{GITHUB_FILES}/{repo}/HEAD/{urllib.parse.quote(path)}"
    log.info("downloading %s to %s", url, target)
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read()
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}")
        partial.write_bytes(content)
        partial.replace(target)
        # Written last: its presence says that the download is complete.
        recorded.write_text(hashlib.sha256(content).hexdigest() + "\n", encoding="utf-8")
    except (OSError, http.client.HTTPException) as error:
        raise DataMissingError(
            f"{url} could not be downloaded to {folder}: {error}\n  - {otherwise}"
        ) from None
    return target
