"""The Hugging Face Hub, asked once and quickly: the client itself retries for over a minute."""

from typing import Literal

from huggingface_hub import HfApi, try_to_load_from_cache

_TIMEOUT = 10.0  # seconds


def why_unavailable(
    repo_id: str, kind: Literal["model", "dataset"], revision: str | None = None
) -> str | None:
    """Why the Hub does not give a repository, in one line, or None if it does."""
    try:
        HfApi().repo_info(repo_id, repo_type=kind, revision=revision, timeout=_TIMEOUT)
    # Not found, no rights, offline, timed out, no valid name: all are reasons, none is a bug.
    except Exception as error:
        return first_line(error)
    return None


class HubError(Exception):
    """Why the Hub does not give something, in one line."""


def dataset_files(repo_id: str, revision: str) -> tuple[str, list[str]]:
    """The commit that a revision of a dataset means now, and the paths of its files.

    Raises:
        HubError: if the Hub does not say.
    """
    try:
        info = HfApi().dataset_info(repo_id, revision=revision, timeout=_TIMEOUT)
    except Exception as error:  # as above
        raise HubError(first_line(error)) from error
    return info.sha or revision, [file.rfilename for file in info.siblings or ()]


def is_cached(repo_id: str, revision: str | None = None) -> bool:
    """Whether a model was downloaded before."""
    return any(
        isinstance(try_to_load_from_cache(repo_id, name, revision=revision), str)
        for name in ("modules.json", "config.json")
    )


def first_line(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
