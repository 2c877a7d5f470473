"""Running the programs as a user does, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(
    *arguments: str,
    cwd: Path = ROOT,
    timeout: float = 300,
    environment: Mapping[str, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`python -m <arguments>`; a variable given as None is taken out of the environment."""
    env = {"OMP_NUM_THREADS": "2", **os.environ, "HYDRA_FULL_ERROR": "0"}
    for name, value in (environment or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def assert_explained(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """The program failed, said what is wrong, and showed no traceback."""
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
