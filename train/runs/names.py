"""The name of a run's folder: when it started, and which options it was given."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from train.declarations.registry import is_place

_MAX_LENGTH = 80
_MAX_VALUE = 24
_MAX_CHOSEN = 60
# Options on data folders, output and tracking, which do not distinguish runs.
_NOT_SHOWN = re.compile(
    r"(experiment|extensions|run_dir|name|resume|device)$|(hydra|hub|tracking|trackers)\b"
)


def run_name(overrides: Sequence[str], chosen: str | None = None) -> str:
    """`2026-11-22_10-15-00_seed-43_batch_size-64`: the seed first, and no paths.

    Args:
        chosen: a name in place of the options, if a folder's name can hold any of it.
    """
    if part := _clean(chosen or "", _MAX_CHOSEN):
        parts = [part]
    else:
        parts = [part for override in sorted(overrides, key=_rank) if (part := _shown(override))]
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for part in parts:
        if len(name) + 1 + len(part) > _MAX_LENGTH:
            break
        name = f"{name}_{part}"
    return name


def _rank(override: str) -> bool:
    return not override.lstrip("+").startswith("seed=")


def _shown(override: str) -> str:
    """`trainer.batch_size=64` as `batch_size-64`; "" for what is not shown."""
    key, _, value = override.lstrip("+~").partition("=")
    value = value.strip("'\"")
    if _NOT_SHOWN.match(key) or is_place(key) or (key, value) == ("model", "pretrained"):
        return ""
    if "/" in value or "\\" in value:  # a folder or Hub id: its last part
        value = PurePosixPath(value.replace("\\", "/")).name
    short = f"{'model' if key == 'model.path' else key.rpartition('.')[2]}-{value[:_MAX_VALUE]}"
    return _clean(short)


def _clean(text: str, max_length: int | None = None) -> str:
    """What every file system takes in a name."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in ".+-_") else "-" for c in text)
    return clean[:max_length].rstrip("_-.")
