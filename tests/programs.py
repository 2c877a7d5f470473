"""Running the programs as a user does, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from idiomtune import cli
from idiomtune.errors import UserError
from tests import forks

ROOT = Path(__file__).resolve().parent.parent


def program_env(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """That of a program; a variable given as None is taken out of it."""
    env = {**os.environ, "HYDRA_FULL_ERROR": "0"}
    for name, value in (changes or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


def run(
    *arguments: str,
    cwd: Path = ROOT,
    timeout: float = 500,
    environment: Mapping[str, str | None] | None = None,
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """`python -m <arguments>`, or `python <script> …`.

    Args:
        environment: changes of the tests' own; None takes a variable out.
        cold: in a Python that imports everything itself; else what takes seconds is there already.
    """
    command = [*arguments] if arguments[0].endswith(".py") else ["-m", *arguments]
    env = program_env(environment)
    if not cold and forks.is_same_world(env):
        child = forks.program(command, cwd=cwd, env=env)
        return subprocess.CompletedProcess(command, child.wait(timeout), *child.said())
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def main_of(program: str) -> Callable[[Sequence[str]], int]:
    """`idiomtune <program> …` in this process; gives its exit status."""

    def main(words: Sequence[str]) -> int:
        try:
            cli.main([*program.split(), *words])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return main


def settings_of(program: str, **values: Any) -> Any:
    """The checked settings of a program, by values of Python."""
    return cli.read_settings(program, (), values)


def refused(call: Callable[[], object], *named: str, error: type[UserError] = UserError) -> UserError:
    """The error of what is refused, whose message names these."""
    with pytest.raises(error) as caught:
        call()
    assert not [part for part in named if part not in str(caught.value)], caught.value
    return caught.value


def assert_explained(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """The program failed, said what is wrong, and showed no traceback."""
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
