"""Versions of the code and of the packages that decide the numbers."""

from __future__ import annotations

import importlib.metadata
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import train

_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "accelerate",
    "pytorch-metric-learning",
    "hydra-core",
    "numpy",
)


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def code_version() -> dict[str, Any]:
    """Version of this code, and in a clone its commit and whether the work tree differs from it."""
    root = Path(__file__).resolve().parents[2]
    version: dict[str, Any] = {"version": train.__version__}
    if not (root / ".git").exists():
        return version

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        version["commit"] = git("rev-parse", "HEAD")
        version["modified"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    return version
