"""Requests to the Hugging Face Hub that fail quickly: the client itself retries for over a minute."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import httpx2
from huggingface_hub import HfApi, errors, get_token, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from idiomtune.io.secrets import hide_secrets

_TIMEOUT = 10.0  # seconds

NETWORK_ERRORS: tuple[type[Exception], ...] = (
    httpx2.HTTPError,
    HfHubHTTPError,
    errors.LocalEntryNotFoundError,
    errors.OfflineModeIsEnabled,
    ConnectionError,
    TimeoutError,
)
"""No connection, no answer in time, or a refusal; some are `OSError`, but not about a file."""

CLIENT_ERRORS: tuple[type[Exception], ...] = (
    *NETWORK_ERRORS,
    OSError,  # about files, tokens, name resolution
    HFValidationError,
    httpx2.InvalidURL,  # from HF_ENDPOINT
    json.JSONDecodeError,  # something other than the Hub answered, such as a proxy
    errors.OIDCError,
    errors.DeviceCodeError,
)
"""What the client raises: not found, no access, offline, invalid name."""

_NO_NETWORK_ERRORS = (
    BrokenPipeError,  # from `| head`
    # The Hub answered, and trying again would change nothing.
    errors.RemoteEntryNotFoundError,
    errors.RepositoryNotFoundError,
    errors.RevisionNotFoundError,
)


def why_unavailable(
    repo_id: str, kind: Literal["model", "dataset"], revision: str | None = None
) -> str | None:
    """The reason why the Hub does not give a repository, in one line; None if it does."""
    try:
        HfApi().repo_info(repo_id, repo_type=kind, revision=revision, timeout=_TIMEOUT)
    except CLIENT_ERRORS as error:
        return first_line(error)
    return None


def is_network_error(error: BaseException) -> bool:
    """Whether the network caused an error: libraries wrap the client's errors in their own."""
    return any(isinstance(e, NETWORK_ERRORS) and not isinstance(e, _NO_NETWORK_ERRORS) for e in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_cached(repo_id: str, revision: str | None = None) -> bool:
    """Whether a model was downloaded before."""
    names = ("modules.json", "config.json")
    with suppress(HFValidationError):  # of what cannot be a name on the Hub
        return any(isinstance(try_to_load_from_cache(repo_id, n, revision=revision), str) for n in names)
    return False


def first_line(error: BaseException) -> str:
    """The first line of an error, without secrets."""
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0]) if lines else type(error).__name__


def reason_for(error: BaseException) -> str:
    """The error that the server answered with, else the first cause, in one line without secrets."""
    chain = list(causes(error))
    cause = next((e for e in chain if getattr(e, "response", None) is not None), chain[-1])
    return without_secrets(" ".join(str(cause).split())) or type(cause).__name__


def without_secrets(text: str) -> str:
    """A text without secrets, and with addresses without their query.

    `HF_ENDPOINT` may hold a password, and upload addresses have a signature in their query.
    """
    text = re.sub(r"(\w+://[^\s?#'\"<>]*)\?[^\s'\"<>]*", r"\1?***", hide_secrets(text))
    with suppress(*CLIENT_ERRORS):  # it could not be fetched
        if token := get_token():
            return text.replace(token, "***")
    return text
