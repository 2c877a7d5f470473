"""Scores of embeddings that are cut to their leading dimensions: how their keys are told."""

from __future__ import annotations

import re

_SUFFIX = re.compile(r"/dim=(\d+)$")


def at_dimension(key: str, dimension: int) -> str:
    """The key of a score at so many leading dimensions: `<key>/dim=128`."""
    return f"{key}/dim={dimension}"


def dimension_of(key: str) -> int | None:
    """To how many dimensions embeddings were cut for a score; None if they were not."""
    found = _SUFFIX.search(key)
    return int(found[1]) if found else None


def full_key(key: str) -> str:
    """The key of the same score of the full embeddings."""
    return _SUFFIX.sub("", key)
