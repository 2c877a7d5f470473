"""Configuration files parsed once a process: half of what composing them takes, hundreds of times."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


def keep_yaml() -> None:
    """Have `OmegaConf.load` parse a file again only when it has changed."""
    load = OmegaConf.load
    kept: dict[tuple[str, int, int], Any] = {}

    def load_once(file: Any) -> Any:
        """Hydra hands over an open file; those within packages of its own have no path."""
        path = Path(str(getattr(file, "name", file)))
        if not path.is_absolute():
            return load(file)
        found = path.stat()
        key = (str(path), found.st_mtime_ns, found.st_size)
        if key not in kept:
            kept[key] = load(file)
        return deepcopy(kept[key])

    OmegaConf.load = load_once  # type: ignore[assignment,method-assign]
