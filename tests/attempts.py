"""Runs of a tiny model that are cut short where a test says: by SIGKILL, or by a disk that is full.

Each is a fork of the tests' process, which does the real `train`. What the child does in its run folder,
and each forward pass, is a numbered point at which it can be ended; the same attempt passes the same points
in the same order.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from tests import forks

POINT = "\x01"  # before a line that names a point; all other lines are the run's own
_WHAT = {  # the first part of a path in the run folder, without its dots → what is being done there
    "best": "best",
    "best_old": "best",
    "run.json": "record",
    "config.yaml": "record",
    "metrics.jsonl": "metrics",
    "baseline.json": "report",
    "scores.json": "report",
    "plots": "report",
}

How = Literal["kill", "torn", "full"]


@dataclass(frozen=True)
class Attempt:
    """One start of a run.

    Attributes:
        folder: the run folder.
        options: of a new run; of a resumed one, what is given beside `resume=`.
        resume: go on with the run in the folder.
        at: the point at which something happens, counted from 1; of those named `what`, if that is given.
        how: `kill` is SIGKILL at the point; `torn` ends the process a few bytes into what it writes next;
            `full` fills the disk: no file can grow and no folder be made from then on.
    """

    folder: str
    options: list[str] = field(default_factory=list)
    resume: bool = False
    at: int | None = None
    what: str | None = None
    how: How = "kill"


@dataclass(frozen=True)
class Outcome:
    """How it ended: the points that were passed (the last is where it was killed), and what it said."""

    killed: bool
    status: int
    points: list[str]
    output: str


def attempted(attempt: Attempt) -> Outcome:
    """Run it in a child, which may be killed."""
    from tests.tiny_runs import composed

    composed("train", *attempt.options)  # kept here, so that it is there in the children
    with patch.object(forks, "in_child", forks.in_whole_child):
        child = forks.Child(lambda: sys.exit(_run(attempt)))
    status = child.wait(500)
    lines = child.said()[1].splitlines()
    return Outcome(
        killed=status in (-signal.SIGKILL, -signal.SIGXFSZ),
        status=status,
        points=[line.removeprefix(POINT) for line in lines if line.startswith(POINT)],
        output="\n".join(line for line in lines if not line.startswith(POINT)),
    )


# -------------------------------------------------------------------- in the child


def _run(attempt: Attempt) -> int:
    import logging

    from idiomtune.errors import UserError
    from tests.tiny_runs import resume, train

    patch("idiomtune.reports.screens.show_finished_run").start()
    if attempt.what != "report":
        for figure in ("learning_curve", "gains_chart", "sentence_maps"):
            patch(f"idiomtune.reports.plots.{figure}", _sketch).start()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    Points(attempt).watch()
    try:
        if attempt.resume:
            resume(Path(attempt.folder), *attempt.options, draws=True)
        else:
            train(Path(attempt.folder), attempt.options, draws=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _sketch(*arguments: Any) -> None:
    """A file in place of a figure, which takes longer to draw than the run to train."""
    path: Path = arguments[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(10_000))


class Points:
    """Numbers what the process passes, says so among its errors, and lets happen there what it should."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._folder = Path(attempt.folder)
        self._passed = 0
        self._is_full = False
        self._removing = Path()
        self._scoring = "scoring"

    def watch(self) -> None:
        from idiomtune.encoder.build import build_encoder
        from idiomtune.encoder.encoder import Encoder

        forward = Encoder.embed

        def watched_forward(encoder: Encoder, *arguments: Any) -> Any:
            untrained = not (self._folder / "baseline.json").exists()
            what = "training" if encoder.training else "baseline" if untrained else self._scoring
            self._reach(what)
            return forward(encoder, *arguments)

        def watched_build(*arguments: Any, **options: Any) -> Encoder:
            if self._folder / "best" in arguments:
                self._scoring = "re-scoring"
            return build_encoder(*arguments, **options)

        patch.object(Encoder, "embed", watched_forward).start()
        patch("idiomtune.programs.outcome.build_encoder", watched_build).start()
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "shutil.rmtree":
            self._removing = Path(os.fsdecode(arguments[0]))
        elif event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._touch(path)
        elif event in ("os.mkdir", "os.link"):
            self._touch(arguments[event == "os.link"], makes=True)
        elif event in ("os.rename", "os.truncate"):
            self._touch(arguments[0])
        elif event in ("os.remove", "os.rmdir"):
            inside = arguments[1] != -1  # a name relative to a folder that shutil.rmtree has open
            self._touch(self._removing if inside else arguments[0], removes=True)

    def _touch(self, name: Any, *, makes: bool = False, removes: bool = False) -> None:
        path = Path(os.fsdecode(name))
        if not path.is_relative_to(self._folder) or path == self._folder:
            return
        top = path.relative_to(self._folder).parts[0].removesuffix(".partial")
        what = _WHAT.get(top.lstrip("."), "record")
        if "step_" in top:
            what = "pruning" if removes else "saving"
        self._reach(what, path)
        if self._is_full and makes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _reach(self, what: str, path: Path | None = None) -> None:
        os.write(2, f"{POINT}{what}\n".encode())
        self._passed += self._attempt.what in (None, what)
        if self._passed != self._attempt.at or self._attempt.what not in (None, what):
            return
        if self._attempt.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        # Where a file would pass this size, the part up to it is written. What happens then Python has set
        # to an error; without that the signal ends the process.
        grows = path is not None and path.name == "metrics.jsonl" and path.exists()
        size = 10 + (path.stat().st_size if path is not None and grows else 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        if self._attempt.how == "torn":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        self._is_full = self._attempt.how == "full"
