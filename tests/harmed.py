"""A program that is harmed at one of its file operations.

    python -m tests.harmed '{"watch": ["out"], "at": 7, "how": "kill"}' idiomtune learn option=value …

Each opening for writing, folder made, rename and removal of what begins with one of `watch` (relative to the
working folder) is a numbered point.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Harm:
    """What happens to the program, and when.

    Attributes:
        watch: what paths begin with, whose operations are points.
        at: the point; None = none.
        after: seconds until SIGKILL, wherever the program then is.
        how: `kill` is SIGKILL; `put` writes `content` to the file `path`, whose folder is made.
        count: a file that gets the number of points, at the end.
    """

    watch: list[str] = field(default_factory=list)
    at: int | None = None
    after: float | None = None
    how: Literal["kill", "put"] = "kill"
    path: str = ""
    content: str = ""
    count: str | None = None


class Points:
    """Counts them, and does the harm."""

    def __init__(self, harm: Harm) -> None:
        self._harm = harm
        self._watch = tuple(f"{Path.cwd()}/{name}" for name in harm.watch)
        self.passed = 0
        self._is_harming = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_harming or event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        path = arguments[0]
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if not isinstance(path, str | bytes):
            return
        if not str(Path.cwd() / os.fsdecode(path)).startswith(self._watch):
            return
        self.passed += 1
        if self.passed == self._harm.at:
            self._is_harming = True
            if self._harm.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            put = Path(self._harm.path)
            put.parent.mkdir(parents=True, exist_ok=True)
            put.write_text(self._harm.content, encoding="utf-8")
            self._is_harming = False


def main() -> None:
    harm = Harm(**json.loads(sys.argv[1]))
    sys.argv = sys.argv[2:]
    points = Points(harm)
    if harm.count is not None:
        counted = Path(harm.count).absolute()
        atexit.register(lambda: counted.write_text(str(points.passed), encoding="utf-8"))
    if harm.after is not None:
        timer = threading.Timer(harm.after, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    sys.addaudithook(points)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
